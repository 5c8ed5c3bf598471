"""Machines of the world, the provider that runs them, and its notices."""
