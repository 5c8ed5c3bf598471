"""The Runner record: one use of a machine, one registration at GitHub, at most one job."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.demand import DemandClass
from autoscaler.model.identifiers import (
    InstallationId,
    Instant,
    JobId,
    MachineId,
    RunnerName,
    Seconds,
)

PASSED_OVER_AFTER: Seconds = 180.0
"""A runner idle for this long while a fitting job was queued has been passed over by GitHub."""

MAX_HANDED_OVER = 3
"""How many registrations may be handed over to one machine before its seat is closed."""

MAX_NAME = 64
"""GitHub takes no longer runner names."""

INSTALLATION_ID = re.compile("[0-9a-f]{8}")
"""What a store makes. A fleet's name has 32 characters at most, a machine's id 16: with no more than
these, a runner's name stays within GitHub's bound. And no filter of EC2 takes one for a wildcard."""


def runner_name(
    fleet: str, installation: InstallationId, machine: MachineId, attempt: int
) -> RunnerName:
    """The name of a machine's n-th registration. Raises ValueError where it would be too long."""
    name = f"{fleet}-{installation}-{machine}-{attempt}"
    if len(name) > MAX_NAME:
        message = f"runner name {name!r} is longer than {MAX_NAME} characters"
        raise ValueError(message)
    return RunnerName(name)


def runner_names(catalogue: Catalogue, machine: MachineId, tries: int) -> Iterator[RunnerName]:
    """Every name that a machine's registrations may have had, whichever id was borne then."""
    for installation in catalogue.installations.all:
        for attempt in range(1, tries + 1):
            yield runner_name(catalogue.fleet, installation, machine, attempt)


def machine_in_name(catalogue: Catalogue, name: RunnerName) -> MachineId | None:
    """The machine that a registration's name tells of, if this installation gave the name."""
    installation, machine = _parts(catalogue.fleet, name)
    return machine if installation in catalogue.installations.all else None


def machine_in_any_name(fleet: str, name: RunnerName) -> MachineId | None:
    """The same, whichever installation of the fleet gave the name.

    A backup from before a take-over does not know the id that its machines' registrations bear:
    enough to keep a machine that it knows, never to end one or to remove a registration.
    """
    return _parts(fleet, name)[1]


def _parts(fleet: str, name: RunnerName) -> tuple[str, MachineId | None]:
    installation, _, rest = name.removeprefix(f"{fleet}-").partition("-")
    machine, _, attempt = rest.rpartition("-")
    given = name.startswith(f"{fleet}-") and INSTALLATION_ID.fullmatch(installation) is not None
    numbered = attempt.isascii() and attempt.isdigit()
    return installation, MachineId(machine) if given and machine and numbered else None


class RunnerState(StrEnum):
    """named (recorded) -> registered -> listening (listening) -> busy -> done.

    deregistering is a registration that is being deleted before it was handed over.
    """

    NAMED = "named"
    REGISTERED = "registered"
    LISTENING = "listening"
    BUSY = "busy"
    DEREGISTERING = "deregistering"
    DONE = "done"


IDLE_STATES = frozenset({RunnerState.NAMED, RunnerState.REGISTERED, RunnerState.LISTENING})
"""A registration in one of these may still be given a job."""

_UNDONE = {RunnerState.BUSY, RunnerState.DONE}

RUNNER_TRANSITIONS: dict[RunnerState, frozenset[RunnerState]] = {
    RunnerState.NAMED: frozenset({RunnerState.REGISTERED, RunnerState.DEREGISTERING, *_UNDONE}),
    RunnerState.REGISTERED: frozenset({RunnerState.LISTENING, RunnerState.DEREGISTERING, *_UNDONE}),
    RunnerState.DEREGISTERING: frozenset({RunnerState.NAMED, RunnerState.REGISTERED, *_UNDONE}),
    RunnerState.LISTENING: frozenset({*_UNDONE}),
    RunnerState.BUSY: frozenset({RunnerState.DONE}),
    RunnerState.DONE: frozenset(),
}
"""`named` and `registered` may turn busy at once: GitHub's word about a job can overtake ours.
`deregistering` goes back after a restart, which forgets that a deletion was under way."""


@dataclass(slots=True)
class Runner:
    """One registration. The JIT configuration itself is a secret and is in no record."""

    name: RunnerName
    machine: MachineId
    demand: DemandClass
    state: RunnerState
    since: Instant
    named_at: Instant
    github_id: int | None = None
    handed_over_at: Instant | None = None
    listening_at: Instant | None = None
    job: JobId | None = None
    passed_over: bool = False
    retry_at: Instant | None = None
    reason: str = ""
