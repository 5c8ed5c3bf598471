"""GitHub Apps: their tokens, where they are installed, and which one sends a request."""
