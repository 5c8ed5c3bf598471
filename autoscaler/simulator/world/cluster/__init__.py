"""A Kubernetes cluster in virtual time: API server, scheduler, node controllers, and kubelets."""
