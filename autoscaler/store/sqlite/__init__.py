"""The embedded store: what is specific to SQLite."""
