"""Hypothesis strategies for the four records with every field filled, and small hand-made ones."""

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from autoscaler.controller.ports.store import Delivery, HistoryRow
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job, JobState, RunOrigin
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun, RerunOutcome, RerunState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState, Placement

# Surrogates included: GitHub's JSON can hold lone ones.
_TEXT = st.text(st.characters(exclude_categories=()), max_size=12)


def every_field(record: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a dataclass with a value for each field, also for those with a default."""
    hints = typing.get_type_hints(record)
    return st.builds(
        record, **{f.name: _of(hints[f.name]) for f in dataclasses.fields(record) if f.init}
    )


def _of(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, typing.NewType):
        return _of(hint.__supertype__)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of(*(_of(argument) for argument in arguments))
    if typing.get_origin(hint) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(_of(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*(_of(argument) for argument in arguments))
    return _simple(hint)


def _simple(hint: Any) -> st.SearchStrategy[Any]:
    if hint is type(None):
        return st.none()
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(0, 2**63 - 1)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is str:
        return _TEXT
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    return every_field(hint)


def rerun(number: int, state: RerunState = RerunState.DUE, at: float = 100.0) -> Rerun:
    ended = state is RerunState.ENDED
    return Rerun(
        job=JobId(number),
        repository="acme/widgets",
        run_id=7,
        run_attempt=1,
        died_in=1,
        sku=SkuName("linux.gpu"),
        machine=MachineId("m0"),
        state=state,
        taken_at=at,
        created_at=at,
        due=None if ended else at,
        ended_at=at if ended else None,
        outcome=RerunOutcome.ACCEPTED if ended else None,
    )


DEMAND = DemandClass("org:acme", "gpu", ("linux.gpu",), (SkuName("linux.gpu"),))


def job(number: int, state: JobState = JobState.QUEUED, at: float = 100.0) -> Job:
    ended = at if state is JobState.COMPLETED else None
    return Job(
        JobId(number),
        "acme/widgets",
        ("linux.gpu",),
        DEMAND,
        state,
        at,
        at,
        completed_at=ended,
        origin=RunOrigin(from_fork=False, public=True, branch="main"),
    )


def call(
    name: str, state: LaunchRequestState = LaunchRequestState.RECORDED, at: float = 100.0
) -> LaunchRequest:
    return LaunchRequest(
        id=LaunchRequestId(name),
        sku=SkuName("linux.gpu"),
        provider=ProviderName("us-east-1"),
        option=0,
        capacity_type=CapacityType.SPOT,
        offerings=("us-east-1/g5.xlarge/a/spot",),
        slots=(MachineId("m0"), MachineId("m1")),
        token="token",
        body='{"TargetCapacity": 2}',
        state=state,
        created_at=at,
        settled_at=at if state is LaunchRequestState.SETTLED else None,
    )


def machine(
    name: str,
    state: MachineState = MachineState.READY,
    at: float = 100.0,
    *,
    of: str = "c0",
    provider_id: str | None = None,
) -> Machine:
    return Machine(
        id=MachineId(name),
        sku=SkuName("linux.gpu"),
        provider=ProviderName("us-east-1"),
        launch_request=LaunchRequestId(of),
        slot=0,
        created_at=at,
        state=state,
        since=at,
        placement=Placement(
            dollars_per_hour=1.25,
            quota_usage=(("us-east-1/G", 4),),
            provider_id=None if provider_id is None else ProviderMachineId(provider_id),
        ),
    )


def runner(
    name: str,
    state: RunnerState = RunnerState.REGISTERED,
    at: float = 100.0,
    on: str = "m0",
    of: int | None = None,
) -> Runner:
    """`of` is the job that it ran."""
    made = Runner(RunnerName(name), MachineId(on), DEMAND, state, at, at)
    made.job = None if of is None else JobId(of)
    return made


def delivery(name: str, at: float = 100.0) -> Delivery:
    return Delivery(name, "workflow_job", at, b'{"action": "queued", "of": "%b"}' % name.encode())


def row(kind: str, record: str, at: float = 100.0, event: str = "seen") -> HistoryRow:
    return HistoryRow(at, kind, record, event, "why")
