"""All health checks of a machine, in order: its own, its accelerators', its image's."""

from __future__ import annotations

from autoscaler.agent.checks.accelerators import check_accelerators
from autoscaler.agent.checks.machine import GITHUB_TIMEOUT, run_health_checks
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import Host
from autoscaler.agent.image_check import check_image
from autoscaler.agent.verdicts import Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_machine(
    health_checks: dict[str, Any], skew: float | None, host: Host, clock: Clock
) -> list[Check]:
    """Run the checks with the controller's parameters. The image's own runs if all others passed.

    `skew`: how far the clock is off, in seconds. If a job runs in a pod of its own, with the accelerators and
    another image, neither the accelerators nor the image are checked here.
    """
    checks = run_health_checks(health_checks, skew, host, GITHUB_TIMEOUT)
    if not host.has_accelerators:
        return checks
    checks += check_accelerators(health_checks, host, clock)
    if all(check.ok for check in checks):
        checks += check_image(host, clock)
    return checks
