"""What changes about pods, and what it means for the controller."""
