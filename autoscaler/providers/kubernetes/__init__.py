"""Machines that are pods of a Kubernetes cluster. Not implemented yet: only its keys in fleet.yaml."""
