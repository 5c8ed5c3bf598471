"""Every metric, and log set-up."""
