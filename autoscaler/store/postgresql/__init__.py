"""The store on a PostgreSQL server: what is specific to it."""
