"""Methods, one per file, with schedules and aggregation criteria: rules without clock, rank or file.

May import the ground floor and `experiment`.
"""
