"""The ways in which lab machines misbehave on purpose, through their user data or their requests.

Users of runner fleets reported each of them.
"""

from enum import StrEnum


class Misbehaviour(StrEnum):
    """What a machine does wrong, once. All but the first four boot normally."""

    NEVER_BOOTS = "never boots"
    """Nothing of it ever runs: the kernel hangs, a volume does not attach."""
    NO_AGENT = "boots without an agent"
    """The user data end after their first line, which armed a shutdown."""
    FAILS_HEALTH_CHECKS = "fails its health checks"
    """The image has no runner."""
    HANGS_IDLE = "its listener hangs before any job"
    NO_WORKER = "gets a message and no worker"
    """As in actions/runner#4668: the message is acknowledged, the job never starts."""
    HANGS_AT_WORK = "its listener hangs under a job"
    """The worker runs to its end, but the listener renews no lock and reports no end."""
    STOPS_AFTER_WORK = "its job is over, and has stopped listener and worker with SIGSTOP"
    REBOOTS_READY = "reboots before it gets an assignment"
    REBOOTS_HANDED = "reboots with the assignment in its hands"
    REBOOTS_AT_WORK = "reboots under its job"
    VANISHES_READY = "parks and vanishes"
    """It stands still, or its network is gone; EC2 shows it as running."""
    VANISHES_HANDED = "vanishes with the assignment in its hands"
    VANISHES_ACKNOWLEDGED = "acknowledges the assignment and vanishes"
    SILENT_AT_WORK = "is cut off from the controller under a job"
    STAYS_ON = "finishes and does not power off"
    EXITS_AT_WORK = "reports its exit under a job"
    LIES = "lies about itself and others"


_RUNNER = '"$RUNNER_AGENT_ROOT/opt/actions-runner'

_SABOTAGE = {
    Misbehaviour.NO_AGENT: 'echo "runner-agent: not on this image" >&2; exit 1',
    Misbehaviour.FAILS_HEALTH_CHECKS: f'mv {_RUNNER}/run.sh" {_RUNNER}/lost"',
    Misbehaviour.HANGS_IDLE: f'echo idle > {_RUNNER}/hang"',
    Misbehaviour.NO_WORKER: f'echo message > {_RUNNER}/hang"',
    Misbehaviour.STOPS_AFTER_WORK: f'echo stopped > {_RUNNER}/hang"',
    Misbehaviour.HANGS_AT_WORK: f'echo work > {_RUNNER}/hang"',
}
"""Lines of bash; the listener's stand-in looks for the file `hang`."""


def sabotaged(user_data: str, kind: Misbehaviour) -> str:
    """Linux user data with a line of sabotage after the first command, which arms the shutdown."""
    interpreter, armed, rest = user_data.split("\n", 2)
    return "\n".join([interpreter, armed, _SABOTAGE.get(kind, ":"), rest])


AT_WORK = 3
"""The heartbeat, counted from the acknowledgement, at which something happens under the job."""
