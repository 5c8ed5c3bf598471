"""Tests of the GitHub client against a small GitHub on loopback."""
