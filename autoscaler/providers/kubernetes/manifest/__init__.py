"""The pod of a launch request."""
