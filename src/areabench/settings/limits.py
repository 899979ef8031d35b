"""Limits of numbers that several parts share."""

SMALLEST, LARGEST = 1e-15, 1e15  # of a scale of a problem: squares and products stay finite, in float32 too
LARGEST_SIZE = 10**12  # of one axis: a larger one would overflow before it could be reported as not fitting into memory
