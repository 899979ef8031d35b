"""Transports own time and drive the same rules: simulator, MPI and replay; with their clocks, wires and signals.

May import the ground floor and the rooms from experiment to runfile; mpi4py only in mpi_server, mpi_worker and world.
"""
