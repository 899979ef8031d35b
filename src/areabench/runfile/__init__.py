"""Run files: their schema, and how they are written, read, resumed and recovered.

May import engine and the rooms below it. Reading imports nothing that can run or record.
"""
