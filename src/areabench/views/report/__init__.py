"""`areabench report`: runs and sweeps as one HTML page with its own charts. Imports no other view."""
