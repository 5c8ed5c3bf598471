"""What machines cost and how many are allowed: prices, quotas, and the usage of other installations."""
