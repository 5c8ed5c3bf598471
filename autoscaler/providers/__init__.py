"""Providers of machines: one folder each. No provider imports another."""
