"""Tests of the manifests in deploy/kubernetes and of the controller's image."""
