"""The HTTP server: webhook, bootstrap, admin, health and metrics endpoints, and their listeners.

The endpoints parse requests and write answers. Ports and callables make the decisions.
"""
