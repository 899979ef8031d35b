"""Functions of the user's own, which an experiment names: found, held against their settings, and called."""
