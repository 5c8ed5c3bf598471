"""The keys of fleet.yaml, with their types and defaults."""
