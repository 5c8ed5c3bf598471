"""Simulates GitHub on loopback for unmodified clients: Apps, REST, webhooks, job queue, runner protocol.

Start at `LabGitHub` (server.py); its settings are in settings.py. It does not simulate runners' machines.
"""
