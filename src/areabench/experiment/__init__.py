"""What an experiment says: its sections together, TOML files, checks that concern two parts, labels."""
