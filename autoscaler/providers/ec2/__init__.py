"""EC2 as a provider of machines."""
