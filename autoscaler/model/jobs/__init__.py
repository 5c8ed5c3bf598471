"""Jobs, the runners that are registered for them, and which jobs a SKU serves and admits."""
