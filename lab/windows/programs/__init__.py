"""Programs that Windows machines run, in the place of what Wine does not have."""
