"""A Kubernetes cluster on this host: the real control plane, and nodes that kwok simulates."""
