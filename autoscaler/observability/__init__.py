"""The metrics and the log set-up."""
