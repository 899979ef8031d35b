"""Job scripts for cluster schedulers: from an experiment or sweep file to a script for Slurm or PBS."""
