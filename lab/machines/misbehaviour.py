"""The ways in which lab machines misbehave on purpose, through their user data or their requests.

Users of runner fleets reported each of them.
"""

from enum import StrEnum


class Misbehaviour(StrEnum):
    """What a machine does wrong, once. All but the first four boot normally."""

    NEVER_BOOTS = "never boots"
    """The machine never runs a program: the kernel hangs, or a volume does not attach."""
    NO_AGENT = "boots without an agent"
    """The user data end after their first line, which schedules a shutdown."""
    FAILS_HEALTH_CHECKS = "fails its health checks"
    """The image has no runner."""
    LOSES_GPU = "boots with one GPU too few"
    """nvidia-smi shows the others, and exits with status 0."""
    HANGS_IDLE = "its listener hangs before any job"
    NO_WORKER = "gets a message and no worker"
    """The runner gets a job message and acknowledges it, and the job never starts (actions/runner#4668)."""
    HANGS_AT_WORK = "its listener hangs during a job"
    """The worker finishes the job, but the listener neither renews the lock nor reports the end."""
    STOPS_AFTER_WORK = "its job is over, and has stopped listener and worker with SIGSTOP"
    REBOOTS_READY = "reboots before it gets an assignment"
    REBOOTS_HANDED = "reboots after it got the assignment"
    REBOOTS_AT_WORK = "reboots during its job"
    VANISHES_READY = "becomes ready and vanishes"
    """The machine hangs, or has no network. EC2 shows it as running."""
    VANISHES_HANDED = "vanishes after it got the assignment"
    VANISHES_ACKNOWLEDGED = "acknowledges the assignment and vanishes"
    SILENT_AT_WORK = "is cut off from the controller during a job"
    STAYS_ON = "finishes and does not power off"
    EXITS_AT_WORK = "reports its exit during a job"
    LIES = "lies about itself and others"


_RUNNER = '"$RUNNER_AGENT_ROOT/opt/actions-runner'

_SABOTAGE = {
    Misbehaviour.NO_AGENT: 'echo "runner-agent: not on this image" >&2; exit 1',
    Misbehaviour.FAILS_HEALTH_CHECKS: f'mv {_RUNNER}/run.sh" {_RUNNER}/lost"',
    Misbehaviour.LOSES_GPU: 'mv "$RUNNER_AGENT_ROOT/opt/gpus/gpu-1.xml" "$RUNNER_AGENT_ROOT/opt/lost"',
    Misbehaviour.HANGS_IDLE: f'echo idle > {_RUNNER}/hang"',
    Misbehaviour.NO_WORKER: f'echo message > {_RUNNER}/hang"',
    Misbehaviour.STOPS_AFTER_WORK: f'echo stopped > {_RUNNER}/hang"',
    Misbehaviour.HANGS_AT_WORK: f'echo work > {_RUNNER}/hang"',
}
"""The line of bash for each misbehaviour. The stand-in for the listener looks for the file `hang`."""


def sabotaged(user_data: str, kind: Misbehaviour) -> str:
    """Return user data with a line of sabotage after the first line, which schedules a shutdown.

    Many misbehaviours need no line. Those that need one are for Linux.
    """
    if kind not in _SABOTAGE:
        return user_data
    interpreter, armed, rest = user_data.split("\n", 2)
    return "\n".join([interpreter, armed, _SABOTAGE[kind], rest])


AT_WORK = 3
"""The number of the heartbeat, from the acknowledgement on, at which the machine misbehaves during a job."""
