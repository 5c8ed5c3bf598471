"""A self-hosted GPU runner fleet autoscaler for GitHub Actions."""
