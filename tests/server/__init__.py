"""Tests of the server over real sockets, with all ports behind it in memory."""
