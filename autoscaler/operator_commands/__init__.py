"""The commands for a running controller, alerting rules, machine images, and a shell as jobs have it."""

from autoscaler.operator_commands.alerts import alerts
from autoscaler.operator_commands.commands import (
    adopt,
    drain,
    pause,
    quarantine,
    resume,
    retry,
    terminate,
    unverified,
)
from autoscaler.operator_commands.configuration import plan, reload
from autoscaler.operator_commands.images.bake import bake
from autoscaler.operator_commands.images.check import check as check_images
from autoscaler.operator_commands.images.publishing import prune, publish
from autoscaler.operator_commands.images.shell import shell
from autoscaler.operator_commands.queries import explain, history, jobs, machines, status

__all__ = [
    "adopt",
    "alerts",
    "bake",
    "check_images",
    "drain",
    "explain",
    "history",
    "jobs",
    "machines",
    "pause",
    "plan",
    "prune",
    "publish",
    "quarantine",
    "reload",
    "resume",
    "retry",
    "shell",
    "status",
    "terminate",
    "unverified",
]
