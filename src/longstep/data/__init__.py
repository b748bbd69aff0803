"""Instances: datasets, their reference optima, samples from files, tables into files."""
