"""Ends a test that waits too long, and finds the processes that a test leaves."""
