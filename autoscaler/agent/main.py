"""The agent: proves its machine's identity, gets one registration, runs one runner, powers off.

It decides when its own machine has no work left. It never acts for another machine and never starts
a second runner. What a job prints or writes can only make it power its own machine off.
docs/bootstrap.md describes the protocol, docs/agent.md the timers.

Imports are few and light because a hundred agents may start at once on a small host.

Run as `python3 -I -S agent.py [--host-file PATH]`. The host file (JSON, all keys optional) overrides
the defaults of `Host`. The file `controller.json` beside it ({"controller": URL, "provider": NAME,
"ca": PEM or null}) names the controller. Both must belong to root, or to the agent's own user, and
must not be writable by others.

In a pod, it runs as `agent.py pod` (see `pod`). GitHub's runner starts it as `agent.py job-started FILE` and
`agent.py job-completed FILE` (see `hooks`). The build of an image runs `agent.py install-driver FILE`
(see `driver`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from autoscaler.agent.actions import BadSettings, PowerOff, Stopped
from autoscaler.agent.boot.boot_script import run_boot_script
from autoscaler.agent.boot.bootstrap_client import connect
from autoscaler.agent.boot.identity import metadata_proof
from autoscaler.agent.clock import Clock
from autoscaler.agent.driver.installation import install_from_file
from autoscaler.agent.hooks.job_hooks import HOOK_VARIABLES, run_hook
from autoscaler.agent.host import WINDOWS, Host, read_trusted, refuse_second_boot
from autoscaler.agent.journal import log_line
from autoscaler.agent.lifecycle import Agent
from autoscaler.agent.pod import live_in_pod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


DISARMED = (0, 1116)
"""Exit statuses of `shutdown /a`: done, and ERROR_NO_SHUTDOWN_IN_PROGRESS (WinError.h)."""

SCHEDULED = 1190
"""Exit status of `shutdown /s` while another is scheduled: ERROR_SHUTDOWN_IS_SCHEDULED (WinError.h)."""


def build(host: Host, controller_file: str) -> Agent:
    """Return the agent, made from its settings. Raises BadSettings."""
    clock = Clock(host.time_scale)
    timeout = clock.real_timeout(5.0)
    proof = lambda: metadata_proof(host.metadata, timeout)  # noqa: E731
    return Agent(host, clock, connect(controller_file, proof, clock))


def host_file(arguments: Iterable[str]) -> str:
    """Return the path given with --host-file, or the default. Raises BadSettings."""
    words = list(arguments)
    if not words:
        return (
            "C:\\ProgramData\\runner-agent\\host.json" if WINDOWS else "/etc/runner-agent/host.json"
        )
    if len(words) != 2 or words[0] != "--host-file":
        raise BadSettings("usage: agent.py [--host-file PATH]")
    return words[1]


def install_in_image(words: list[str]) -> int:
    """Install a driver; return the exit status. A mistake must not power off the build of an image."""
    try:
        return install_from_file(words[0], host_file(words[1:]))
    except (BadSettings, IndexError) as error:
        log_line(f"usage: agent.py install-driver FILE [--host-file PATH]: {error}")
        return 2


def command(argv: list[str]) -> int | None:
    """Run one of the host's commands. Return its exit status, or None if it did not run to its end."""
    try:
        done = subprocess.run(  # noqa: S603 - argv comes from the root-only host file
            argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"{argv[0]}: {type(error).__name__}")
        return None
    return done.returncode


def disarm(argv: list[str], tries: int = 5, pause: float = 2.0) -> None:
    """Cancel the scheduled shutdown. Raises PowerOff if this fails: the shutdown would kill a job."""
    for _ in range(tries):
        if command(argv) in DISARMED:
            return
        time.sleep(pause)
    raise PowerOff("the scheduled shutdown could not be cancelled")


def power_off(argv: list[str], cancel: list[str], tries: int = 3, pause: float = 20.0) -> None:
    """Power the machine off, and wait for it. If this fails, the end of the service does it.

    `cancel` cancels a scheduled shutdown. Where the user data's, which is up to 40 minutes away, still stands,
    Windows refuses another one.
    """
    for _ in range(tries):
        if command(argv) == SCHEDULED:
            command(cancel)
            command(argv)
        time.sleep(pause)


def main() -> int:
    """Run the agent, then power off. When this process ends, its service also powers off."""
    host = Host({})
    try:
        words = sys.argv[1:]
        if words and words[0] == "pod":
            return live_in_pod(host_file(words[1:]))
        if len(words) == 2 and words[0] in HOOK_VARIABLES:
            return run_hook(*words)
        if words and words[0] == "install-driver":
            return install_in_image(words[1:])
        path = host_file(words)
        host = Host(read_trusted(path) or {})
        refuse_second_boot(host)
        # The time of the controller's answers begins with the agent below.
        run_boot_script(host, Clock(host.time_scale))
        folder = os.path.dirname(path)
        agent = build(host, os.path.join(folder, "controller.json"))
        signal.signal(signal.SIGTERM, agent.stop)
        disarm(host.disarm)
        agent.live()
    except Stopped as reason:
        # systemd waits for this process, and then powers the machine off.
        log_line(f"stopped: {reason}")
        return 1
    except (PowerOff, BadSettings) as reason:
        log_line(f"powering off: {reason}")
    # The shutdown also stops this service, and must not wait for it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    power_off(host.power_off, host.disarm)
    return 1


if __name__ == "__main__":
    sys.exit(main())
