"""What an experiment says: records, TOML files, checks and labels. May import the ground floor only."""
