"""`areabench watch`: a run under way, followed from its file alone."""
