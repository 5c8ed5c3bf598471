"""The server over real sockets, with everything behind it in memory."""
