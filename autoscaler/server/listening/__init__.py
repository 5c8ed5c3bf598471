"""The listeners: addresses, connections and their limits, TLS."""
