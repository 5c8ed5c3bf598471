"""Windows machines under Wine."""
