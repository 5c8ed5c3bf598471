"""The schema's history, run by `store.schema` when a database is opened."""
