"""Records change their state only as their tables of transitions say."""

from dataclasses import replace
from enum import StrEnum
from typing import cast

import pytest

from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.records.state import kind_and_key
from autoscaler.model import events as e
from autoscaler.model.changes import (
    INITIAL_STATES,
    TRANSITIONS,
    Record,
    UnlistedTransitionError,
    copied,
)
from autoscaler.model.identifiers import JobId, MachineId, SkuName
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.interruptions import Rerun, RerunState
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from tests.ledger.builders import START, World
from tests.planner.fleets import catalogue

KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in TRANSITIONS}
RERUN = Rerun(
    job=JobId(1),
    repository="acme/widgets",
    run_id=1,
    run_attempt=1,
    died_in=1,
    sku=SkuName("gpu"),
    machine=MachineId("c0"),
    state=RerunState.WAITING,
    taken_at=START,
    created_at=START,
)


def one_of_each() -> tuple[World, dict[type[Record], Record]]:
    """A world with one record of each kind."""
    world = World()
    world.queue(1)
    runner = world.ready()
    world.state.add(replace(RERUN))
    state = world.state
    records: dict[type[Record], Record] = {
        Job: world.job(1),
        LaunchRequest: world.call(),
        Machine: world.machine("c0"),
        Runner: world.runner(runner),
        Rerun: state.reruns[JobId(1)],
    }
    return world, records


def in_state(world: World, record: Record, state: StrEnum) -> Record:
    """Replace a record by its copy in this state, as if it came from the store."""
    copy = replace(record, state=state)  # type: ignore[arg-type]
    world.state.drop(record)
    world.state.add(copy, stored=True)
    return copy


def every_pair() -> list[tuple[str, StrEnum, StrEnum]]:
    return [
        (kind.__name__, before, to)
        for kind, table in TRANSITIONS.items()
        for before in table
        for to in table
    ]


@pytest.mark.parametrize(("kind", "before", "to"), every_pair())
def test_only_transitions_of_the_table_are_allowed(kind: str, before: StrEnum, to: StrEnum) -> None:
    world, records = one_of_each()
    record = in_state(world, records[KINDS[kind]], before)
    listed = to in TRANSITIONS[KINDS[kind]][before]
    if listed:
        with world.state.changing(record):
            assert world.state.enter(record, to)
    else:
        refused = pytest.raises(UnlistedTransitionError, match=f"from {before} to {to}")
        with refused, world.state.changing(record):
            world.state.enter(record, to)
    assert record.state is (to if listed else before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_is_assigned_directly_is_taken_back_and_refused(kind: str) -> None:
    """Also if the table has the transition: only `enter` may change a state."""
    world, records = one_of_each()
    record = records[KINDS[kind]]
    before = record.state
    others = [state for state in TRANSITIONS[KINDS[kind]] if state is not before]
    for other in others:
        refused = pytest.raises(UnlistedTransitionError, match=f"from {before} to {other}")
        with refused, world.state.changing(record):
            record.state = other
        assert record.state is before
    with world.state.changing(record):
        pass  # checks the indexes


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_record_starts_only_in_an_initial_state(kind: str) -> None:
    world, records = one_of_each()
    record = records[KINDS[kind]]
    for state in TRANSITIONS[KINDS[kind]]:
        copy = replace(record, state=state)
        world.state.drop(record)
        if state in INITIAL_STATES[KINDS[kind]]:
            world.state.add(copy)
            record = copy
            continue
        with pytest.raises(UnlistedTransitionError, match=f"from no state to {state}"):
            world.state.add(copy)
        world.state.add(record, stored=True)


def test_every_table_has_a_row_for_every_state_and_every_record_has_a_table() -> None:
    assert set(TRANSITIONS) == set(INITIAL_STATES)
    for kind, table in TRANSITIONS.items():
        (states,) = {type(state) for state in table}
        assert set(table) == set(cast(type[StrEnum], states)), kind


def noting(refused: list[str]) -> World:
    """A world whose ledger notes refused transitions, as the ledger of `serve` logs them."""
    world = World()
    world.ledger = Ledger(catalogue(), lambda error: refused.append(str(error)))
    world.do(e.ControllerStarted, 0.0)
    return world


def test_a_refused_transition_in_production_is_logged_and_changes_nothing() -> None:
    refused: list[str] = []
    world = noting(refused)
    world.launch(1)
    world.lists(world.listed("c0", terminated=True))
    machine = world.machine("c0")
    before = copied(machine)
    asked = (MachineId("c0"), TerminationReason.IDLE, "by mistake")
    world.do(e.TerminationRequested, *asked)
    assert refused == ["machine c0: no transition from terminated to terminating"]
    assert machine == before
    with world.state.changing(machine):
        machine.state = MachineState.READY
    assert machine.state is MachineState.TERMINATED
    assert refused[1:] == ["machine c0: no transition from terminated to ready"]
    world.state.drop(machine)
    world.state.add(replace(machine))
    assert kind_and_key(machine)[1] not in world.state.machines


def test_a_refused_transition_raises_in_tests() -> None:
    world = World()
    world.launch(1)
    world.lists(world.listed("c0", terminated=True))
    with pytest.raises(UnlistedTransitionError):
        world.do(e.TerminationRequested, MachineId("c0"), TerminationReason.IDLE, "by mistake")
