"""Figures of runs, sweeps and splits."""
