"""Tests of fleet.yaml: which files are accepted, and the errors for the others."""
