"""Reads the text of fleet.yaml: its values with their lines, and what is wrong with each."""
