"""Splits: one file each."""
