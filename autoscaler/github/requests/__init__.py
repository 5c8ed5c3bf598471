"""Requests to GitHub: their values, limits and order, how they are sent, what answers mean."""
