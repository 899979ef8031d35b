"""The user's own parts: methods, problems, data, splits and delays that an experiment names by import path.

May import methods, problems, experiment and the ground floor.
"""
