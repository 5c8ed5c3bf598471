"""The words of the product: identifiers, the four records, events, the catalogue, the plan.

Values only. Nothing in this package reads a clock, draws a random number or touches I/O.
"""
