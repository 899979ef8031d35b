"""One run without clock, wire or file: server, client, conductor, scenario, lanes, diagnosis.

May import theory, methods, problems, timing, experiment and what lies below.
"""
