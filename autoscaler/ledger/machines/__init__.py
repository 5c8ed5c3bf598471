"""What events about machines and launch requests change."""
