"""What must hold after each run, by what is looked at."""
