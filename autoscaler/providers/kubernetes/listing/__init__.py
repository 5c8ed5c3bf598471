"""Lists pods, and says what their status means."""
