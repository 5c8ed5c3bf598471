"""What the controller needs of the outside: Protocols, the values they trade, the errors they raise.

Adapters implement these elsewhere; nothing here knows one.
"""
