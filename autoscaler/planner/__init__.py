"""Make a Plan from a Fleet. Pure functions without clock or I/O."""
