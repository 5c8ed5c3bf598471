"""The endpoints of machines: their requests, and the agents that they fetch."""
