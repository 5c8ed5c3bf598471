"""The commands that ask and control a running controller or build machine images, and a shell of its jobs."""

from autoscaler.operator_commands.commands import adopt, close_circuit, terminate, unverified
from autoscaler.operator_commands.image_bake import bake
from autoscaler.operator_commands.job_shell import shell
from autoscaler.operator_commands.queries import explain, history, jobs, machines, status

__all__ = [
    "adopt",
    "bake",
    "close_circuit",
    "explain",
    "history",
    "jobs",
    "machines",
    "shell",
    "status",
    "terminate",
    "unverified",
]
