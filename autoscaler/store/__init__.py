"""Stores records, webhook deliveries and history durably. `opening.open_store` opens a `Store`."""
