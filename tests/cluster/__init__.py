"""Tests against a real Kubernetes API server, scheduler and controllers, with nodes that kwok plays."""
