"""What is wrong with the fleet: a fault for each cause."""
