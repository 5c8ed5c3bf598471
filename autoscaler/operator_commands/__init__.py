"""The commands with which an operator controls a running controller."""

from autoscaler.operator_commands.commands import adopt, close_circuit, terminate, unverified

__all__ = ["adopt", "close_circuit", "terminate", "unverified"]
