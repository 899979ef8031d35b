"""Numbers from finished runs, for all views: grouping, cells, step sizes kept, comparison, published values, advice.

May import every room that reads; never transports, launch or the recording of run files.
"""
