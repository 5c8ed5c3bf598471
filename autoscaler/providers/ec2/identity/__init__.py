"""Verifies the identity documents of machines."""
