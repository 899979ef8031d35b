"""The transports: each owns a clock and drives the same rules."""
