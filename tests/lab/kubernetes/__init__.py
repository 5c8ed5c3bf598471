"""The cluster on this host, without starting it: its programs and its processes. tests/cluster starts it."""
