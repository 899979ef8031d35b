"""One run without clock, wire or file: server, client, conductor, scenario, lanes, diagnosis."""
