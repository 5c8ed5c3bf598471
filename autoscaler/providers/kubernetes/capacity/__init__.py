"""The accelerators of a cluster's nodes."""
