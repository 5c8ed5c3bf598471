"""The health checks of a machine and its accelerators."""
