"""Takes webhook deliveries in, and asks GitHub for those that did not arrive."""
