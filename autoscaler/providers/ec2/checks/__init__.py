"""Checks the parts of fleet.yaml that only EC2 has."""
