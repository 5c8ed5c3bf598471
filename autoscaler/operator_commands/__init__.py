"""The commands that speak to a running controller, in its operator's name."""

from autoscaler.operator_commands.commands import confirm, unclear

__all__ = ["confirm", "unclear"]
