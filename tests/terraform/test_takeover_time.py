"""How long a new host takes to take over the store: the configured waits add up to less than five minutes.

No test can measure this without AWS, so these tests add up the waits that Terraform and host.py configure, and
compare them with the table in docs/terraform.md.
"""

import re
import runpy

from lab.terraform.commands import SOURCE
from tests.terraform.hosts import PROGRAM

TARGET = 300
"""Seconds within which a new host takes over the store of a host that was lost."""

BOOT = 120
"""Seconds allowed for steps that AWS gives no time for, and that no test measures: EC2 Auto Scaling acts, and
the new host boots, installs Docker and pulls the controller's image.
"""

CHECK_TIMEOUT = 10
"""Seconds after which a health check without an answer fails, unless Terraform sets `timeout`: AWS's default
for HTTPS (documentation of `aws_lb_target_group`).
"""

LOOKS = 5
"""The most pauses of host.py on the usual path: until it sees the end of the old host; the volume detached,
attaching and attached; and the device.
"""

CONTROLLER = SOURCE / "modules" / "controller"
NETWORK = (CONTROLLER / "network.tf").read_text()
HOST = (CONTROLLER / "host.tf").read_text()
CONSTANTS = runpy.run_path(str(PROGRAM))
PAUSE, STUCK, ENDING = (int(CONSTANTS[name]) for name in ("PAUSE", "STUCK", "ENDING"))
DOCUMENT = SOURCE.parent / "docs" / "terraform.md"


def setting(text: str, pattern: str, default: int | None = None) -> int:
    """Return the number that the text sets once, or `default` if the text does not set it."""
    found = re.findall(rf"(?:^|\s){pattern}(\d+)\b", text)
    if not found and default is not None:
        return default
    assert len(found) == 1, f"{pattern} is there {len(found)} times"
    return int(found[0])


def assigned(text: str, name: str, default: int | None = None) -> int:
    """Return the value of an attribute."""
    return setting(text, rf"{name}\s*=\s*", default)


def detection() -> int:
    """Seconds from the loss of a host until the load balancer finds the host unhealthy, at most.

    The first failed check begins up to an interval after the loss, and the last one ends with its time-out.
    """
    checks = assigned(NETWORK, "interval") * assigned(NETWORK, "unhealthy_threshold")
    return checks + assigned(NETWORK, "timeout", CHECK_TIMEOUT)


def steps() -> list[int]:
    """Return the seconds of each step of the usual path, in the order of the table in docs/terraform.md."""
    return [detection(), assigned(NETWORK, "deregistration_delay"), BOOT, LOOKS * PAUSE]


def test_a_new_host_takes_over_the_store_within_five_minutes() -> None:
    assert sum(steps()) <= TARGET


def test_a_controller_that_hangs_is_stopped_while_the_new_host_boots() -> None:
    """So the usual path has no step for the wait for the old host."""
    assert setting(HOST, "--stop-timeout ") < BOOT


def test_a_host_that_shuts_down_is_waited_for_until_its_controller_has_stopped() -> None:
    """Docker kills the controller after the first time, and systemd ends its last backup after the second."""
    assert setting(HOST, "--stop-timeout ") + setting(HOST, "TimeoutStopSec=") <= ENDING


def test_the_group_does_not_replace_a_new_host_that_waits_for_an_old_one() -> None:
    """A new target is healthy after `healthy_threshold` checks; the default is that of Terraform's provider."""
    healthy = assigned(NETWORK, "interval") * assigned(NETWORK, "healthy_threshold", 3)
    longest = BOOT + ENDING + STUCK + LOOKS * PAUSE + healthy
    assert longest < assigned(HOST, "health_check_grace_period")


def test_the_document_has_the_seconds_of_each_step() -> None:
    section = DOCUMENT.read_text().partition("## The controller's host")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|.*\| (\d+) \|$", section, re.MULTILINE)
    assert [int(seconds) for seconds in rows] == [*steps(), sum(steps())]
    longest = sum(steps()) + ENDING + STUCK
    assert f"up to {ENDING} seconds" in section
    assert f"another {STUCK} seconds" in section
    assert f"up to {longest} seconds" in section
    grace = assigned(HOST, "health_check_grace_period")
    assert f"first {grace} seconds" in section
