"""Launching ranks: mpirun, MPI families, what every rank of a launch does first and last, and the doctor.

May import the ground floor and the rooms from experiment to transports.
"""
