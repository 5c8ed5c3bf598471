"""The API server: connection, credentials, paths and errors."""
