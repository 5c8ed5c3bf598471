"""GitHub's edge: webhook verification, App authentication, the REST client."""
