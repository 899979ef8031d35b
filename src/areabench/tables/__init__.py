"""Runs and sweeps as tables."""
