"""The operator's boot script: its result, and on Windows its run.

On Linux the user data ran the script before they started the agent. On Windows they wrote it to a file, and the
agent runs it, once, before it attests.
"""

from __future__ import annotations

import os
import subprocess

from autoscaler.agent.clock import Clock
from autoscaler.agent.host import WINDOWS, Host
from autoscaler.agent.journal import log_line
from autoscaler.agent.limits import BOOT_SCRIPT
from autoscaler.agent.programs import ProcessGroup
from autoscaler.agent.verdicts import Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BOOT_LOG = 2000
"""Bytes at the end of the script's log that are read."""

MOST_BOOT_DETAIL = 700
"""Characters of the log in the detail. The controller keeps 1,000 of all checks together."""

TIMED_OUT, INTERRUPTED, NOT_STARTED = "124", "interrupted", "not-started"

BOOT_ENDINGS = {
    TIMED_OUT: "timed out",
    "137": "was killed",
    INTERRUPTED: "was interrupted, as by a restart of the machine,",
    NOT_STARTED: "did not start",
}
"""What statuses mean. 124 and 137 are those of timeout(1), which ends the script on Linux."""

WINDOWS_BOOT_SCRIPT = "C:\\ProgramData\\runner-agent\\boot-script"
"""The script's file on Windows, without its extension. The status and the log have others."""

POWERSHELL = ("powershell", "-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy")
"""How Windows PowerShell runs a script. Its exit status is that of `exit`, or 1 after an error that ends the
script (about_PowerShell_exe)."""


def run_boot_script(host: Host, clock: Clock) -> None:
    """Run the boot script of a Windows machine at its first boot."""
    if WINDOWS:
        run_once(WINDOWS_BOOT_SCRIPT + ".ps1", host, clock)


def run_once(script: str, host: Host, clock: Clock) -> None:
    """Run a PowerShell script if it is there and has no status yet. Write its status and seconds to a file."""
    if os.path.exists(status_file(host)) or not os.path.exists(script):
        return
    _write_status(host, INTERRUPTED, 0.0)
    log_line("running the boot script")
    began = clock.now()
    try:
        status = _run_powershell(script, log_file(host), clock.real_timeout(BOOT_SCRIPT))
    except OSError as error:
        log_line(f"the boot script does not start: {error}")
        status = NOT_STARTED
    _write_status(host, status, clock.now() - began)


def _run_powershell(script: str, log_path: str, timeout: float) -> str:
    """Run a script for at most `timeout` real seconds. Return its status. Raises OSError."""
    with open(log_path, "wb") as log:
        process = subprocess.Popen(  # noqa: S603 - the operator's script
            [*POWERSHELL, "Bypass", "-File", script],
            cwd="C:\\",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    group = ProcessGroup(process)
    try:
        return str(process.wait(timeout))
    except subprocess.TimeoutExpired:
        group.end()
        process.wait()
        return TIMED_OUT
    finally:
        group.close()


def _write_status(host: Host, status: str, seconds: float) -> None:
    with open(status_file(host), "w", encoding="ascii") as file:
        file.write(f"{status} {seconds:.0f}\n")


def status_file(host: Host) -> str:
    """Return the file with the exit status and the seconds of the script."""
    linux = host.root + "/etc/runner-agent/boot-script.status"
    return WINDOWS_BOOT_SCRIPT + ".status" if WINDOWS else linux


def log_file(host: Host) -> str:
    """Return the file with the output of the script."""
    linux = host.root + "/var/log/runner-agent-boot-script.log"
    return WINDOWS_BOOT_SCRIPT + ".log" if WINDOWS else linux


def check_boot_script(host: Host) -> Iterator[Check]:
    """Return the check of the boot script, if there was one: `boot_script`.

    The detail of a failure has the end of its log.
    """
    try:
        with open(status_file(host), encoding="ascii") as file:
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
        with open(log_file(host), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BOOT_LOG))
            text = file.read(MOST_BOOT_LOG).decode("utf-8", "replace")
    except OSError:
        return "no log"
    printable = "".join(char if char.isprintable() else " " for char in text)
    words = " ".join(printable.split())
    return words[-MOST_BOOT_DETAIL:] or "it printed nothing"
