"""Measures the cost of the hot paths. Each program here measures one of them; none is a test."""
