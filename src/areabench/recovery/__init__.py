"""Saves what can be saved of a damaged run file."""
