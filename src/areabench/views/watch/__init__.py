"""`areabench watch`: a run file that grows, shown while the run continues. Imports rich; no transport, no launch."""
