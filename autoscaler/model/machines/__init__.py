"""Machines: their records, launch requests, failures, interruptions and what is known about them."""
