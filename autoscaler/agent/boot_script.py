"""The result of the operator's boot script, which the user data ran before it started the agent."""

from __future__ import annotations

import os

from autoscaler.agent.checks import Check
from autoscaler.agent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BOOT_LOG = 2000
"""Bytes at the end of the script's log that are read."""

MOST_BOOT_DETAIL = 700
"""Characters of the log in the detail. The controller keeps 1,000 of all checks together."""

BOOT_ENDINGS = {"124": "timed out", "137": "was killed"}
"""What exit statuses mean: timeout(1) ends the script, or a signal that cannot be caught did."""


def check_boot_script(host: Host) -> Iterator[Check]:
    """Return the check of the boot script, if there was one: `boot_script`.

    The user data writes its exit status and its seconds. The detail of a failure has the end of its log.
    """
    path = host.root + "/etc/runner-agent/boot-script.status"
    try:
        with open(path, encoding="ascii") as file:
            status, seconds = file.read(100).split()
    except (OSError, ValueError):
        return
    if status == "0":
        yield Check("boot_script", True, f"took {seconds} s")
        return
    what = BOOT_ENDINGS.get(status, f"exited with {status}")
    yield Check("boot_script", False, f"{what} after {seconds} s: {_end_of_log(host)}")


def _end_of_log(host: Host) -> str:
    """Return the end of the log on one line."""
    try:
        with open(host.root + "/var/log/runner-agent-boot-script.log", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BOOT_LOG))
            text = file.read(MOST_BOOT_LOG).decode("utf-8", "replace")
    except OSError:
        return "no log"
    printable = "".join(char if char.isprintable() else " " for char in text)
    words = " ".join(printable.split())
    return words[-MOST_BOOT_DETAIL:] or "it printed nothing"
