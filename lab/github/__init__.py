"""A GitHub on loopback for an unmodified client: App, REST, webhooks, job queue, runner protocol.

It stands in for GitHub alone, never for a runner's machine, and makes nothing of the product's
own. `LabGitHub` (server.py) is the whole of it; its settings stand in settings.py.
"""
