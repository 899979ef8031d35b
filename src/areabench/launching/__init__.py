"""Launching ranks: mpirun, MPI families, what every rank of a launch does first and last, and the doctor."""
