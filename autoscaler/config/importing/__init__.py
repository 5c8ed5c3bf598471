"""Converts PyTorch's scale-config.yml into a fleet.yaml."""
