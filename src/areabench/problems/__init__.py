"""The problems, one a file."""
