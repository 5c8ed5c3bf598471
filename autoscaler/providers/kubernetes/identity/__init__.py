"""Which pods are the fleet's, and which pod a token is of."""
