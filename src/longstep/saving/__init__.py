"""Saving and loading solvers: the family's data, the algorithm's name and the schedule. Factors are made again."""
