"""Providers: the contract they all keep, and EC2's own."""
