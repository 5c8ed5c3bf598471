"""How long a test waits for what must happen: on a busy host, everything takes longer."""

PATIENCE = 300.0
"""Real seconds. A net for a test that would hang: no test passes or measures anything by it."""
