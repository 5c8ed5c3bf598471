"""The GitHub edge against a GitHub of its own on loopback."""
