"""The schema's migrations. `store.schema` runs them when a database is opened."""
