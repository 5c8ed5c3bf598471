"""The commands for a running controller, alerting rules, machine images, and a shell as jobs have it."""
