"""The reasons of unverified machines, and what proves that a record is complete."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.evidence import (
    READY_TRUSTED_FOR,
    SHOWN_AT_GITHUB_WITHIN,
    StartEvidence,
)
from autoscaler.model.machines.unverified import UnverifiedReason
from tests.ledger.builders import START, World

C0 = MachineId("c0")


def test_each_reason_has_an_explanation_of_its_own() -> None:
    explanations = {reason.explanation for reason in UnverifiedReason}
    assert len(explanations) == len(UnverifiedReason)
    assert all(explanations)


def test_a_poll_clears_only_what_a_record_without_an_assignment_can_explain() -> None:
    cleared = {reason.value for reason in UnverifiedReason if reason.is_cleared_by_poll}
    assert cleared == {"store_is_older", "no_runner_list_yet", "no_machine_list_yet"}


@pytest.mark.parametrize("listed_at", [0.0, START + 59.9, START + 60.0])
def test_evidence_is_missing_until_a_listing_of_runners_is_new_enough(listed_at: float) -> None:
    assert SHOWN_AT_GITHUB_WITHIN == 60.0
    world = World(now=START - 1.0)
    world.make_ready()
    machine = world.machine("c0")
    machine.work.agent_seen = False
    evidence = StartEvidence(START, listed_at)
    assert not evidence.proves_record_of(machine)
    assert evidence.is_missing_for(machine) is (listed_at < START + 60.0)
    found = START + 1.0
    machine.since = found + 60.0  # a listing of before it was found proves nothing about it
    assert evidence.is_missing_for(machine)


@pytest.mark.parametrize("proof", ["its agent polled", "it was created since"])
def test_a_machine_that_proves_its_record_lacks_no_evidence(proof: str) -> None:
    world = World(now=START - 1.0)
    world.make_ready()
    machine = world.machine("c0")
    started_at = START if proof == "its agent polled" else machine.created_at
    machine.work.agent_seen = proof == "its agent polled"
    evidence = StartEvidence(started_at)
    assert (evidence.proves_record_of(machine), evidence.is_missing_for(machine)) == (True, False)
    assert evidence.proves_unused(machine)
    machine.work.may_run_job = True
    assert not evidence.proves_unused(machine)


def test_an_assigned_machine_is_never_proved_unused_by_its_agent() -> None:
    world = World()
    world.do(e.MachineSeen, C0, True)
    name = world.ready()
    machine = world.machine(world.runner(name).machine)
    assert not world.state.evidence.proves_unused(machine)
    assert not world.state.evidence.is_missing_for(machine)


def test_agents_have_two_minutes_to_poll_after_a_start() -> None:
    evidence = StartEvidence(START)
    assert READY_TRUSTED_FOR == 120.0
    assert evidence.may_still_poll(START + 119.9)
    assert not evidence.may_still_poll(START + 120.0)
