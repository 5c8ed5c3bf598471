"""The agent: proves its machine's identity, gets one registration, runs one runner, powers off.

It decides when its own machine has no work left. It never acts for another machine and never starts
a second runner. What a job prints or writes can only make it power its own machine off.
docs/bootstrap.md describes the protocol, docs/agent.md the timers.

Imports are few and light because a hundred agents may start at once on a small host.

Run as `python3 -I -S agent.py [--host-file PATH]`. The host file (JSON, all keys optional) overrides
the defaults of `Host`. The file `controller.json` beside it ({"controller": URL, "provider": NAME,
"ca": PEM or null}) names the controller. Both must belong to root, or to the agent's own user, and
must not be writable by others.
"""

from __future__ import annotations

import os
import signal
import sys

from autoscaler.agent.actions import PowerOff, Settings, Stopped
from autoscaler.agent.bootstrap_client import Controller
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import WINDOWS, Host, read_trusted
from autoscaler.agent.http_client import Link
from autoscaler.agent.identity import metadata_proof
from autoscaler.agent.journal import say
from autoscaler.agent.lifecycle import Agent
from autoscaler.agent.shutdown import disarm, power_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def build(host: Host, controller_file: str) -> Agent:
    """Return the agent, made from its settings. Raises Settings."""
    values = read_trusted(controller_file)
    if values is None:
        raise Settings(f"{controller_file}: absent")
    url, provider, ca = values.get("controller"), values.get("provider"), values.get("ca")
    if not isinstance(url, str) or not isinstance(provider, str):
        raise Settings("controller file: controller and provider must be text")
    if ca is not None and not isinstance(ca, str):
        raise Settings("controller file: ca must be text or null")
    clock = Clock(host.time_scale)
    timeout = clock.network(5.0)
    proof = lambda: metadata_proof(host.metadata, timeout)  # noqa: E731
    return Agent(host, clock, Controller(Link(url, ca), provider, proof, clock))


def host_file(arguments: Iterable[str]) -> str:
    """Return the path given with --host-file, or the default. Raises Settings."""
    words = list(arguments)
    if not words:
        return (
            "C:\\ProgramData\\runner-agent\\host.json" if WINDOWS else "/etc/runner-agent/host.json"
        )
    if len(words) != 2 or words[0] != "--host-file":
        raise Settings("usage: agent.py [--host-file PATH]")
    return words[1]


def refuse_second_boot(host: Host) -> None:
    """Raise PowerOff if a runner was started before: a machine runs one runner."""
    if os.path.lexists(host.marker):
        raise PowerOff("a runner was started on this machine before")


def main() -> int:
    """Run the agent, then power off. When this process ends, its service also powers off."""
    host = Host({})
    try:
        path = host_file(sys.argv[1:])
        host = Host(read_trusted(path) or {})
        refuse_second_boot(host)
        folder = os.path.dirname(path)
        agent = build(host, os.path.join(folder, "controller.json"))
        signal.signal(signal.SIGTERM, agent.stop)
        disarm(host.disarm)
        agent.live()
    except Stopped as reason:
        # systemd waits for this process, and then powers the machine off.
        say(f"stopped: {reason}")
        return 1
    except (PowerOff, Settings) as reason:
        say(f"powering off: {reason}")
    # The shutdown also stops this service, and must not wait for it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    power_off(host.power_off)
    return 1


if __name__ == "__main__":
    sys.exit(main())
