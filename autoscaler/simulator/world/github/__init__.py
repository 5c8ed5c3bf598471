"""GitHub as the world plays it: jobs, registrations, webhooks and lists."""
