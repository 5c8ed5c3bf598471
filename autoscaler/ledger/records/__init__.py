"""The records in memory, their indexes, and the only code that changes a state."""
