"""Completion scripts for shells, made from the parser of the command line and the records of experiments."""
