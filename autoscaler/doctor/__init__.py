"""Checks what a fleet needs around it, and says what is wrong and what mends it: `autoscaler doctor`."""
