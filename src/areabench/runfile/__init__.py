"""Run files: their schema, and how they are written, read, resumed and recovered. Reading runs nothing."""
