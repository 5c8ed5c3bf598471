"""The Runner record: one use of a machine, one registration at GitHub, at most one job."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.demand import DemandClass
from autoscaler.model.identifiers import Instant, JobId, MachineId, RunnerName, Seconds

PASSED_OVER_AFTER: Seconds = 180.0
"""A runner idle for this long while a fitting job was queued has been passed over by GitHub."""

MAX_TRIES = 3
"""How many names may be minted for one machine before its seat is closed."""


class RunnerState(StrEnum):
    """named (recorded) -> minted -> acknowledged (listening) -> busy -> done."""

    NAMED = "named"
    MINTED = "minted"
    ACKNOWLEDGED = "acknowledged"
    BUSY = "busy"
    DONE = "done"


RUNNER_TRANSITIONS: dict[RunnerState, frozenset[RunnerState]] = {
    RunnerState.NAMED: frozenset({RunnerState.MINTED, RunnerState.BUSY, RunnerState.DONE}),
    RunnerState.MINTED: frozenset({RunnerState.ACKNOWLEDGED, RunnerState.BUSY, RunnerState.DONE}),
    RunnerState.ACKNOWLEDGED: frozenset({RunnerState.BUSY, RunnerState.DONE}),
    RunnerState.BUSY: frozenset({RunnerState.DONE}),
    RunnerState.DONE: frozenset(),
}
"""`named` and `minted` may turn busy at once: GitHub's word about a job can overtake ours."""


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
    acknowledged_at: Instant | None = None
    job: JobId | None = None
    passed_over: bool = False
    retry_at: Instant | None = None
    reason: str = ""
