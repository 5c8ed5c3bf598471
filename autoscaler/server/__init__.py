"""HTTP: webhook, bootstrap, metrics and health. It parses and answers; it decides nothing."""
