"""The commands with which an operator controls a running controller."""

from autoscaler.operator_commands.commands import close_circuit, confirm, unclear

__all__ = ["close_circuit", "confirm", "unclear"]
