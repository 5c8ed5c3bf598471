"""The commands with which an operator controls a running controller, and a shell as its jobs have it."""

from autoscaler.operator_commands.commands import adopt, close_circuit, terminate, unverified
from autoscaler.operator_commands.job_shell import shell

__all__ = ["adopt", "close_circuit", "shell", "terminate", "unverified"]
