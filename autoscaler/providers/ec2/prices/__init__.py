"""Reads prices and quotas."""
