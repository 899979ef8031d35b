"""The fault campaign: seeded runs, each with one fault at a random moment, and what must hold after each."""
