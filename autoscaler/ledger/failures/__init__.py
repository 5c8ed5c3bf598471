"""What failed, how often in a row, and for how long it stays on hold."""
