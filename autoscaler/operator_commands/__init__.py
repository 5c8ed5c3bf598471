"""The commands that speak to a running controller, in its operator's name."""

from autoscaler.operator_commands.commands import close_circuit, confirm, unclear

__all__ = ["close_circuit", "confirm", "unclear"]
