"""The published tables, and ours beside them."""
