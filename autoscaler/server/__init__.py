"""HTTP: the webhook, the machines' bootstrap, health and metrics, and the listeners they stand on.

Parses and answers; every decision is behind a port or a callable.
"""
