"""The Runner record: one registration at GitHub, for one machine and at most one job."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import (
    InstallationId,
    Instant,
    JobId,
    MachineId,
    RunnerName,
    Seconds,
)
from autoscaler.model.jobs.demand import DemandClass

PASSED_OVER_AFTER: Seconds = 180.0
"""GitHub has passed over a runner that was idle for this long while a job with its labels was queued."""

RELEASED_AFTER: Seconds = 120.0
"""A machine deletes its runner's registration and powers itself off if no job came for about this long.

It is the agent's timer `NO_JOB`.
"""

CHECKED_EVERY: Seconds = 60.0
"""After that, the controller checks an idle runner this often: the job may be younger than the runner."""

MAX_ASSIGNMENTS = 3
"""Maximum number of registrations whose configuration is sent to one machine."""

MAX_NAME = 64
"""Maximum length of a runner name at GitHub."""

INSTALLATION_ID = re.compile("[0-9a-f]{8}")
"""The form of an installation ID. With at most 32 characters for the fleet's name and 16 for the machine's
ID, a runner's name stays within `MAX_NAME`. It has no character that is a wildcard in an EC2 filter."""


def runner_name(
    fleet: str, installation: InstallationId, machine: MachineId, attempt: int
) -> RunnerName:
    """Return the name of a machine's n-th registration.

    Raises: ValueError if the name is longer than `MAX_NAME`.
    """
    name = f"{fleet}-{installation}-{machine}-{attempt}"
    if len(name) > MAX_NAME:
        message = f"runner name {name!r} is longer than {MAX_NAME} characters"
        raise ValueError(message)
    return RunnerName(name)


def runner_names(catalogue: Catalogue, machine: MachineId, tries: int) -> Iterator[RunnerName]:
    """Yield every name that registrations of the machine may have had, under each installation ID."""
    for installation in catalogue.installations.all:
        for attempt in range(1, tries + 1):
            yield runner_name(catalogue.fleet, installation, machine, attempt)


def machine_in_name(catalogue: Catalogue, name: RunnerName) -> MachineId | None:
    """Return the machine in a runner's name if this installation made the name, else None."""
    installation, machine = _parts(catalogue.fleet, name)
    return machine if installation in catalogue.installations.all else None


def machine_in_any_name(fleet: str, name: RunnerName) -> MachineId | None:
    """Return the machine in a runner's name, whichever installation of the fleet made the name.

    A store that was restored from before an adoption does not know the adopted installation ID. Use
    this to keep a machine, not to terminate one or to remove a registration.
    """
    return _parts(fleet, name)[1]


def _parts(fleet: str, name: RunnerName) -> tuple[str, MachineId | None]:
    installation, _, rest = name.removeprefix(f"{fleet}-").partition("-")
    machine, _, attempt = rest.rpartition("-")
    given = name.startswith(f"{fleet}-") and INSTALLATION_ID.fullmatch(installation) is not None
    numbered = attempt.isascii() and attempt.isdigit()
    return installation, MachineId(machine) if given and machine and numbered else None


class RunnerState(StrEnum):
    """Where a registration is in its life.

    named          the name is stored; GitHub has not been asked yet
    registered     GitHub created the registration
    listening      the agent has the JIT configuration and starts the runner
    busy           GitHub gave the runner a job
    deregistering  the registration is being deleted, because its machine never got it
    done           the registration is over
    """

    NAMED = "named"
    REGISTERED = "registered"
    LISTENING = "listening"
    BUSY = "busy"
    DEREGISTERING = "deregistering"
    DONE = "done"


IDLE_STATES = frozenset({RunnerState.NAMED, RunnerState.REGISTERED, RunnerState.LISTENING})
"""GitHub may still give a job to a registration in one of these states."""

_UNDONE = {RunnerState.BUSY, RunnerState.DONE}

RUNNER_TRANSITIONS: dict[RunnerState, frozenset[RunnerState]] = {
    RunnerState.NAMED: frozenset({RunnerState.REGISTERED, RunnerState.DEREGISTERING, *_UNDONE}),
    RunnerState.REGISTERED: frozenset({RunnerState.LISTENING, RunnerState.DEREGISTERING, *_UNDONE}),
    RunnerState.DEREGISTERING: frozenset({RunnerState.NAMED, RunnerState.REGISTERED, *_UNDONE}),
    RunnerState.LISTENING: frozenset({*_UNDONE}),
    RunnerState.BUSY: frozenset({RunnerState.DONE}),
    RunnerState.DONE: frozenset(),
}
"""`named` and `registered` may become `busy` directly, because a webhook can arrive before the agent's report.
`deregistering` goes back after a restart, because the new process does not know about the deletion."""


@dataclass(slots=True)
class Runner:
    """One registration. Its JIT configuration is a secret and is not stored. Moments are Unix seconds."""

    name: RunnerName
    machine: MachineId
    demand: DemandClass
    state: RunnerState
    since: Instant
    """When the registration entered `state`."""
    named_at: Instant
    github_id: int | None = None
    """GitHub's ID of the registration; None until GitHub answered."""
    configuration_sent_at: Instant | None = None
    """When the JIT configuration was sent to the machine."""
    listening_at: Instant | None = None
    job: JobId | None = None
    """The job that GitHub gave to the runner."""
    passed_over: bool = False
    """Whether the runner does not count as supply: it is idle, or silent, for too long."""
    retry_at: Instant | None = None
    """When the ledger checks again whether the idle runner was passed over."""
    reason: str = ""
