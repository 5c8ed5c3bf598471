"""Launches machines: images, launch templates, CreateFleet and its answers; terminates machines."""
