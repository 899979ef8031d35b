"""Linear models on data as people have them: numbers to predict, and features that are mostly zero."""
