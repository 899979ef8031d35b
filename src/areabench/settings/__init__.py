"""Settings as frozen records with documented keys: read from TOML, checked, and written again. Knows no part."""
