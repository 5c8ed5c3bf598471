"""Writes the folder of a new fleet, and creates its GitHub App: `autoscaler init`."""
