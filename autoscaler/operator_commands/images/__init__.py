"""The commands about machine images that join versions.yaml with EC2 and GitHub."""
