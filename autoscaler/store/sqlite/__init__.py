"""The embedded store: what is specific to SQLite, but for its bulk writes (`sqlite_bulk`)."""
