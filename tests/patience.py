"""How long a test waits for an event: on a busy host, everything takes longer."""

PATIENCE = 300.0
"""Real seconds, after which a test fails instead of hanging. No test passes or measures by this limit."""
