"""The transitions of every record: in which states it may begin, and which states may follow.

The tables stand beside the records. `LedgerState.enter` is the only code that changes a state.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from autoscaler.model.changes import Record
from autoscaler.model.jobs.job import JOB_TRANSITIONS, Job, JobState
from autoscaler.model.jobs.runners import RUNNER_TRANSITIONS, Runner, RunnerState
from autoscaler.model.machines.interruptions import RERUN_TRANSITIONS, Rerun, RerunState
from autoscaler.model.machines.launch_requests import (
    LAUNCH_REQUEST_TRANSITIONS,
    LaunchRequest,
    LaunchRequestState,
)
from autoscaler.model.machines.machine import MACHINE_TRANSITIONS, Machine, MachineState

INITIAL_STATES: Mapping[type[Record], frozenset[StrEnum]] = {
    Job: frozenset(JobState),
    LaunchRequest: frozenset({LaunchRequestState.RECORDED}),
    # A listing may show a machine without a record: it may run a job, or is one too many.
    Machine: frozenset({MachineState.REQUESTED, MachineState.ASSIGNED, MachineState.FAILED}),
    Runner: frozenset({RunnerState.NAMED}),
    Rerun: frozenset({RerunState.WAITING}),
}
"""The states in which a new record of each kind may begin."""

TRANSITIONS: Mapping[type[Record], Mapping[Any, frozenset[StrEnum]]] = {
    Job: JOB_TRANSITIONS,
    LaunchRequest: LAUNCH_REQUEST_TRANSITIONS,
    Machine: MACHINE_TRANSITIONS,
    Runner: RUNNER_TRANSITIONS,
    Rerun: RERUN_TRANSITIONS,
}
"""The states that may follow each state, for each kind of record."""


class UnlistedTransitionError(ValueError):
    """A record would have entered a state in a way that its table does not have.

    `kind` and `key` name the record, as in the history. `before` is None for a new record.
    """

    def __init__(self, kind: str, key: str, before: StrEnum | None, to: StrEnum) -> None:
        self.kind, self.key, self.before, self.to = kind, key, before, to
        super().__init__(f"{kind} {key}: no transition from {before or 'no state'} to {to}")


def may_become(record: Record, to: StrEnum) -> bool:
    """Return True if the record's table has a transition from its state to `to`.

    Check this before `LedgerState.enter` for a fact that may come late or twice, and so must change nothing.
    """
    return to in TRANSITIONS[type(record)][record.state]
