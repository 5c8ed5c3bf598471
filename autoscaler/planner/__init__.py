"""Turns a Fleet into a Plan: pure."""
