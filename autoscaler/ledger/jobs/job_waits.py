"""Splits a job's wait into the stages of the machine that ran it."""

from collections.abc import Iterator

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.accounting import WaitStage
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.machine import Machine


def machine_of(state: LedgerState, job: Job) -> tuple[Runner, Machine] | None:
    """Return the runner that GitHub named for a job and its machine, or None if one of them is not known."""
    runner, machine = state.runner_and_machine(job)
    return (runner, machine) if runner is not None and machine is not None else None


def launched_at(state: LedgerState, machine: Machine) -> Instant:
    """Return when the provider answered with the machine.

    Its launch request may have been settled later, if the answer was lost: then no later than its boot.
    """
    request = state.launch_requests.get(machine.launch_request)
    settled = request.settled_at if request is not None else None
    known = [
        at
        for at in (settled, machine.progress.booted_at, machine.progress.ready_at)
        if at is not None
    ]
    return max(machine.created_at, min(known, default=machine.created_at))


def wait_stages(
    state: LedgerState, job: Job, started_at: Instant
) -> Iterator[tuple[WaitStage, Seconds]]:
    """Yield the stages of a wait that ended at `started_at`, and their seconds. They add up to the wait.

    A stage counts only from the moment when the job was queued: a job that takes a ready machine spends nothing
    on its launch.
    """
    found = machine_of(state, job)
    at = job.queued_at
    for stage, until in _milestones(state, *found) if found is not None else ():
        end = min(max(at, until), started_at) if until is not None else at
        yield stage, max(0.0, end - at)
        at = max(at, end)
    last = WaitStage.PICK_UP if found is not None else WaitStage.OTHER
    yield last, max(0.0, started_at - at)


def _milestones(
    state: LedgerState, runner: Runner, machine: Machine
) -> Iterator[tuple[WaitStage, Instant | None]]:
    """Yield the stages before the pick-up, each with its end. None if the moment is not known."""
    yield WaitStage.DECIDE, machine.created_at
    yield WaitStage.LAUNCH, launched_at(state, machine)
    yield WaitStage.BOOT, machine.progress.booted_at
    yield WaitStage.HEALTH_CHECKS, machine.progress.ready_at
    yield WaitStage.DECIDE, runner.named_at
    yield WaitStage.REGISTER, runner.listening_at or runner.configuration_sent_at
