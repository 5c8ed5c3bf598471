"""The laboratory: a simulated GitHub and EC2 on one host, and the demo that runs on them."""
