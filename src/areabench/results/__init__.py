"""Numbers from finished runs, for all views: grouping, cells, step sizes kept, ranking, comparison, advice."""
