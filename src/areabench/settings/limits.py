"""Limits of numbers that several parts share."""

# Of a scale of a problem: squares and products stay finite, in float32 too.
SMALLEST = 1e-15
LARGEST = 1e15
MOST_SNAPSHOTS = 1_000_000  # of a run
LARGEST_SIZE = 10**12  # of one axis: a larger one would overflow before it could be reported as not fitting into memory
