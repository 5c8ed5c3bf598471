"""What events about jobs, runs and runners change."""
