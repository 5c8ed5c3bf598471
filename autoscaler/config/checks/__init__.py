"""Checks combinations of values in fleet.yaml, and the files that it names."""
