"""Windows machines of the lab: the real agent, run by a real Windows CPython under Wine."""
