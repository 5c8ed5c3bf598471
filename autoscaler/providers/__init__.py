"""Places that machines come from: one folder each, blind to one another."""
