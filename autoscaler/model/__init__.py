"""The data types: identifiers, the records, events, the catalogue, the fleet, the plan.

This package reads no clock, uses no random numbers and does no I/O.
"""
