"""Transports own time and drive the same rules: simulator, MPI and replay; with their clocks, wires and signals."""
