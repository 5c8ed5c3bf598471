"""Installs the driver of a machine's GPUs."""
