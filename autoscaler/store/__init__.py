"""Durable records, inbox and history."""
