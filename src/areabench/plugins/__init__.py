"""The user's own parts, which an experiment names: found, held against their settings, called, compared and trusted."""
