"""Reason codes: why jobs wait and what is wrong, each with its words, its alert and its page."""
