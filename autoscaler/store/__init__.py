"""Durable records, inbox and history. `opening.open_store` turns a URL into a `Store`."""
