"""fleet.yaml: what is accepted, what is refused and in which words."""
