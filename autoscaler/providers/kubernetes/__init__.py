"""Machines that are pods of a Kubernetes cluster. fleet.yaml does not use them yet."""
