"""Parts of an experiment that come from a user's own file: found, called, and looked at before a run begins."""
