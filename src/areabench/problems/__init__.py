"""Objectives, data sets and splits. May import the ground floor and `experiment`."""
