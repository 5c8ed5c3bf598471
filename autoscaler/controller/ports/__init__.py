"""The controller's ports: Protocols for everything with I/O, their values, and the errors they raise.

Adapters in other packages implement them.
"""
