"""Checks of fleet.yaml, offline and online."""
