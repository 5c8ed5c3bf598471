"""Carries facts in and intents out: intake, reconciler, executor, bootstrap and their loop."""
