"""Turns fleet.yaml into frozen Settings, or into errors that name file, line, key and fix."""
