"""The transition tables of the records, and what follows from a state."""

import pytest

from autoscaler.model.changes import Changes, HistoryRow
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    MachineId,
    ProviderMachineId,
    RunnerName,
)
from autoscaler.model.jobs.job import JOB_TRANSITIONS, Job, JobState
from autoscaler.model.jobs.runners import (
    IDLE_STATES,
    INSTALLATION_ID,
    MAX_ASSIGNMENTS,
    PASSED_OVER_AFTER,
    RUNNER_TRANSITIONS,
    RunnerState,
    machine_in_any_name,
    machine_in_name,
    runner_name,
    runner_names,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import (
    LAUNCH_REQUEST_TRANSITIONS,
    REPEAT_WINDOW,
    LaunchRequestState,
)
from autoscaler.model.machines.machine import (
    BOOTING_STATES,
    LIVE_STATES,
    MACHINE_TRANSITIONS,
    MachineState,
)
from tests.ledger.builders import World
from tests.planner.fleets import catalogue

OFF = {"failed", "terminating", "terminated", "lost"}


def test_jobs_only_move_forward_except_between_queued_and_waiting() -> None:
    assert {state.value: {to.value for to in ways} for state, ways in JOB_TRANSITIONS.items()} == {
        "waiting": {"queued", "in_progress", "completed"},
        "queued": {"waiting", "in_progress", "completed"},
        "in_progress": {"completed"},
        "completed": set(),
    }


def test_a_settled_launch_request_never_changes() -> None:
    assert {
        s.value: {to.value for to in ways} for s, ways in LAUNCH_REQUEST_TRANSITIONS.items()
    } == {
        "recorded": {"sent", "settled"},
        "sent": {"sent", "unknown", "settled"},
        "unknown": {"sent", "settled"},
        "settled": set(),
    }
    assert set(LAUNCH_REQUEST_TRANSITIONS) == set(LaunchRequestState)
    assert REPEAT_WINDOW == 600.0


def test_a_runner_is_deregistered_only_before_its_machine_acknowledged_it() -> None:
    ways = {s.value: {to.value for to in ways} for s, ways in RUNNER_TRANSITIONS.items()}
    assert ways == {
        "named": {"registered", "deregistering", "busy", "done"},
        "registered": {"listening", "deregistering", "busy", "done"},
        "deregistering": {"named", "registered", "busy", "done"},
        "listening": {"busy", "done"},
        "busy": {"done"},
        "done": set(),
    }
    assert {RunnerState.NAMED, RunnerState.REGISTERED, RunnerState.LISTENING} == IDLE_STATES
    assert (PASSED_OVER_AFTER, MAX_ASSIGNMENTS) == (180.0, 3)


@pytest.mark.parametrize(
    ("state", "ways"),
    [
        ("requested", {"launched", "failed"}),
        ("launched", {"booted", "assigned", *OFF}),
        ("booted", {"ready", "assigned", *OFF}),
        ("ready", {"booted", "assigned", *OFF}),
        ("assigned", {"ready", "exited", *OFF}),
        ("exited", OFF),
        ("terminating", {"terminated", "lost"}),
        ("failed", {"launched", "terminating", "terminated", "lost"}),
        ("terminated", {"assigned", "failed"}),
    ],
)
def test_the_transitions_of_a_machine_are_those_of_the_documents(
    state: str, ways: set[str]
) -> None:
    assert {to.value for to in MACHINE_TRANSITIONS[MachineState(state)]} == ways


def test_every_machine_state_has_its_row() -> None:
    assert set(MACHINE_TRANSITIONS) == set(MachineState)
    assert {MachineState.READY, MachineState.EXITED} <= MACHINE_TRANSITIONS[MachineState.ASSIGNED]
    assert MachineState.READY in MACHINE_TRANSITIONS[MachineState.BOOTED]
    # A restored store may be older than an assignment.
    for state in (MachineState.LAUNCHED, MachineState.BOOTED):
        assert MachineState.ASSIGNED in MACHINE_TRANSITIONS[state]
    assert MachineState.ASSIGNED not in MACHINE_TRANSITIONS[MachineState.REQUESTED]
    assert set(MachineState) - {MachineState.TERMINATED, MachineState.LOST} == LIVE_STATES
    assert BOOTING_STATES == (MachineState.REQUESTED, MachineState.LAUNCHED, MachineState.BOOTED)


@pytest.mark.parametrize("state", list(MachineState))
def test_a_machine_counts_in_the_caps_until_it_is_terminated(state: MachineState) -> None:
    world = World()
    (machine,) = (world.machine(m) for m in world.launch(1))
    machine.state = state
    assert machine.occupies is (state not in (MachineState.TERMINATED, MachineState.LOST))


def test_a_failed_slot_counts_only_if_a_machine_is_bound_to_it() -> None:
    world = World()
    (slot,) = (world.machine(m) for m in world.send(1))
    slot.state = MachineState.FAILED
    assert not slot.occupies
    slot.placement.provider_id = ProviderMachineId("i-1")
    assert slot.occupies


def test_a_runner_is_named_after_fleet_installation_machine_and_try() -> None:
    name = runner_name("ci", InstallationId("0badcafe"), MachineId("m-1"), 2)
    assert name == "ci-0badcafe-m-1-2"


def test_a_runner_name_has_at_most_64_characters() -> None:
    machine = MachineId("m" * (64 - len("ci-0badcafe--1")))
    assert len(runner_name("ci", InstallationId("0badcafe"), machine, 1)) == 64
    with pytest.raises(ValueError, match="longer than 64 characters"):
        runner_name("ci", InstallationId("0badcafe"), machine, 10)


def test_runner_names_of_the_longest_fleet_name_fit_into_64_characters() -> None:
    assert INSTALLATION_ID.fullmatch("0badcafe")
    assert len(runner_name("f" * 32, InstallationId("0badcafe"), MachineId("m" * 16), 9999)) < 64


def test_runner_names_with_former_ids_name_the_same_machine() -> None:
    known = catalogue().with_installations(
        Installations(InstallationId("01d01d01"), (InstallationId("0badcafe"),))
    )
    names = list(runner_names(known, MachineId("m-1"), 2))
    assert names == [f"ci-{one}-m-1-{n}" for one in known.installations.all for n in (1, 2)]
    assert {machine_in_name(known, name) for name in names} == {"m-1"}
    assert machine_in_name(catalogue(), names[0]) is None
    for strange in ("ci-01d01d01", "ci-01d01d01-1", "ci-0badcafe-m-x", "ci-2bad2bad-m-1-1"):
        assert machine_in_name(known, RunnerName(strange)) is None


def test_runner_names_of_another_installation_of_the_fleet_name_a_machine_too() -> None:
    assert machine_in_any_name("ci", RunnerName("ci-2bad2bad-m-1-1")) == "m-1"
    for strange in ("ci-2bad2bad-1", "ci-2bad2bad-m-x", "lab-2bad2bad-m-1-1", "ci-short-m-1-1"):
        assert machine_in_any_name("ci", RunnerName(strange)) is None


def test_changes_are_true_if_there_is_anything_to_store() -> None:
    assert not Changes()
    assert Changes(history=(HistoryRow(1.0, "job", "1", "queued"),))
    assert Changes(cooldowns=(Cooldown("k", 1.0, 1, "why"),))
    assert Changes(records=(_job(),))
    assert Changes(installations=Installations(InstallationId("0badcafe")))


def _job() -> Job:
    world = World()
    world.queue(1)
    return world.job(1)


def test_states_are_spelled_as_github_and_the_history_spell_them() -> None:
    assert [state.value for state in JobState] == ["waiting", "queued", "in_progress", "completed"]
    assert [kind.value for kind in FailureClass] == [
        "capacity",
        "quota",
        "throttled",
        "configuration",
        "unsupported",
        "boot_deadline",
        "health_check",
        "unknown",
    ]
