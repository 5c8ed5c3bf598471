"""GitHub and EC2 to play with on one machine, and the demo that runs there."""
