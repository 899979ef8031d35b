"""One run without clock, wire or file: server, client, conductor, scenario, diagnosis; `plugins` has own parts.

May import theory, methods, problems, timing, experiment and the ground floor.
"""
