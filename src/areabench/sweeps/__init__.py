"""Sweeps: files that describe many runs, running them, reading them."""
