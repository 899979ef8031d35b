"""Data sets: one file each, with what several of them share."""
