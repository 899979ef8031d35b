"""What `areabench doctor` looks at."""
