"""What the numerical studies compute from finished sweeps: errors, slopes, limits, beside what the theory says."""
