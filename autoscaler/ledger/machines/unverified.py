"""The rules of unverified machines: every change to and from this state, whatever learned the fact.

A machine is unverified if no record proves whether a job runs on it. `UnverifiedReason` has the reasons:

- Its launch request is not in the store, or not any more; or it was lost, and is listed again.
- The store is a restored backup, which a machine of an unknown launch request proves. A machine that such a
  store shows as idle may have been assigned since. A job that it shows as queued may have run.
- GitHub shows a runner of it that is not in the store.
- It is silent since the controller started, and GitHub has not listed its runners since, or its provider has
  not listed its machines.

The machine counts as assigned. A poll of its agent verifies it again, if its reason allows that. Else it stays
until it ends, or until an operator releases it.
"""

from autoscaler.ledger.machines.states import close_its_runner, move
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.events import (
    ListedMachine,
    MachineMarkedUnverified,
    MachineReleasedByOperator,
    RunnersListed,
)
from autoscaler.model.identifiers import Instant, MachineId, ProviderName, RunnerName
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import RunnerState, machine_in_any_name
from autoscaler.model.machines.evidence import SHOWN_AT_GITHUB_WITHIN
from autoscaler.model.machines.machine import (
    FOUND_REASONS,
    RELEASED_STATES,
    Machine,
    MachineState,
    Placement,
    TerminationReason,
)
from autoscaler.model.machines.unverified import UnverifiedReason

_POLLING = frozenset({MachineState.READY, MachineState.ASSIGNED})
"""Agents of these machines poll. After a start they get some time for this."""


# --- a provider's listing ---------------------------------------------------------------------------


def adopt(
    state: LedgerState,
    provider: ProviderName,
    listed: ListedMachine,
    at: Instant,
    why: UnverifiedReason,
) -> None:
    """Create an unverified record for a machine with this fleet's tags. It is not surplus."""
    machine = new_machine(provider, listed, at, MachineState.ASSIGNED, why.explanation)
    machine.work.unverified, machine.work.may_run_job = why, True
    machine.progress.assigned_at = machine.work.last_seen = at
    state.add(machine)
    state.note(machine, at, "adopted", machine.reason)


def listed_again(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Take back that the machine is lost. It is unverified if it may have run a job."""
    why = UnverifiedReason.LISTED_AGAIN
    if machine.termination.reason in FOUND_REASONS:
        with state.changing(machine):
            machine.termination.reason = None
    if not machine.work.may_run_job:
        move(state, machine, MachineState.FAILED, at, why.explanation)
        return
    with state.changing(machine):
        machine.work.unverified = why
        machine.work.last_seen = at
    move(state, machine, MachineState.ASSIGNED, at, why.explanation)


def check_age_of_store(state: LedgerState, at: Instant) -> None:
    """Mark older machines as unverified, and dispute jobs, if a machine has an unknown launch request.

    Such a machine proves that the store is a restored backup. Costs O(1) while no machine is
    unverified, else O(machines), plus O(jobs) if there is such a machine.
    """
    if not state.unverified_existing:
        return
    newer = [one.created_at for one in state.machines.values() if _proves_old_store(one)]
    if not newer:
        return
    before = min(max(newer), state.started_at)
    for machine in tuple(state.machines.values()):
        may_poll = machine.state in _POLLING and state.evidence.may_still_poll(at)
        if machine.created_at < before and not may_poll:
            _mark(state, machine, at, UnverifiedReason.STORE_IS_OLDER)
    for job in tuple(state.jobs.values()):
        if job.queued_at < before:
            _dispute(state, job, at)


def shown_as_assigned(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Mark a machine as unverified that its provider shows as assigned, if the store has no registration of it.

    The store is a restored backup then. GitHub's listings may lack the runner during an incident.
    """
    if not machine.work.tries:
        _mark(state, machine, at, UnverifiedReason.STORE_IS_OLDER)


# --- GitHub -----------------------------------------------------------------------------------------


def on_runners_listed(state: LedgerState, event: RunnersListed) -> None:
    """Mark the machines of online or busy runners as assigned."""
    if not event.more:
        state.note_runners_listed(event.scope, event.began_at)
    for name in event.at_work:
        shown_at_work(state, name, event.at, UnverifiedReason.LISTED_AT_GITHUB)


def shown_at_work(
    state: LedgerState,
    name: RunnerName,
    at: Instant,
    why: UnverifiedReason = UnverifiedReason.STORE_IS_OLDER,
) -> None:
    """Mark a runner's machine as assigned, because GitHub shows the runner online or busy.

    A machine without a nonce may be in another machine's slot, so it does not get `why` as its reason.
    """
    if name in state.runners:
        _has_configuration(state, name, at)
        return
    found = machine_in_any_name(state.catalogue.fleet, name)
    machine = state.machines.get(found) if found is not None else None
    if machine is None:
        return
    for one in (machine, *_of_same_request(state, machine)):
        if one.created_at < state.started_at:
            certain = one is machine and one.nonce_hash
            _mark(state, one, at, why if certain else UnverifiedReason.STORE_IS_OLDER)


def closed_as_busy(state: LedgerState, name: RunnerName, at: Instant) -> None:
    """Mark the machine of a closed registration as assigned, if GitHub refused to delete it as busy."""
    runner = state.runners.get(name)
    if runner is not None and runner.state is RunnerState.DONE:
        _has_configuration(state, name, at)


def needs_runner_list(state: LedgerState) -> bool:
    """Return True if a machine needs a new listing of runners to be verified. O(machines).

    A machine requested before the start counts, because its attestation will wait for the listing.
    """
    evidence = state.evidence
    return any(
        evidence.is_missing_for(one)
        or (one.state is MachineState.REQUESTED and one.created_at < evidence.started_at)
        for one in state.machines.values()
    )


def awaits_runner_list(state: LedgerState, now: Instant) -> bool:
    """Return True if a listing of runners that begins now verifies a machine, or may find its runner."""
    old_enough = now >= state.started_at + SHOWN_AT_GITHUB_WITHIN
    return old_enough and needs_runner_list(state)


# --- the planner, the agent, an operator ------------------------------------------------------------


def on_machine_marked_unverified(state: LedgerState, event: MachineMarkedUnverified) -> None:
    """Mark the machine as unverified: it may have been assigned after the store was written."""
    machine = state.machines[event.machine]
    runners_listed = not state.evidence.is_missing_for(machine)
    why = (
        UnverifiedReason.NO_MACHINE_LIST_YET
        if runners_listed
        else UnverifiedReason.NO_RUNNER_LIST_YET
    )
    _mark(state, machine, event.at, why)


def polled_for_assignment(state: LedgerState, machine_id: MachineId, at: Instant) -> None:
    """Mark the machine as ready: its agent polls with the known nonce, so it has no assignment."""
    machine = state.machines.get(machine_id)
    if machine is None or machine.state is not MachineState.ASSIGNED:
        return
    work = machine.work
    if work.unverified is not None and work.unverified.is_cleared_by_poll:
        move(state, machine, MachineState.READY, at, "its agent asks for an assignment")
        with state.changing(machine):
            work.unverified, work.may_run_job = None, False
            work.runner = machine.progress.assigned_at = machine.termination.reason = None
            work.read_at = work.unregistered_at = None
        return
    runner = state.runners.get(work.runner) if work.runner is not None else None
    if runner is not None and runner.configuration_sent_at is None and work.may_run_job:
        with state.changing(machine):
            work.may_run_job = False


def on_machine_released_by_operator(state: LedgerState, event: MachineReleasedByOperator) -> None:
    """Make a machine due for termination. One that is terminating or gone does not change."""
    machine = state.machines.get(event.machine)
    if machine is None or machine.state not in RELEASED_STATES or not machine.occupies:
        return
    with state.changing(machine):
        machine.termination.reason = TerminationReason.OPERATOR
    said = "ran autoscaler terminate"
    if event.forced:
        said = "ran autoscaler terminate --force: a job may have been running"
    state.note(machine, event.at, "operator_terminated", f"{event.by} {said}")


def _of_same_request(state: LedgerState, machine: Machine) -> list[Machine]:
    """Return machines of the same request without an attestation: their slots may be swapped."""
    request = state.launch_requests.get(machine.launch_request)
    slots = (state.machines.get(slot) for slot in request.slots) if request is not None else ()
    return [one for one in slots if one is not None and one.state is MachineState.LAUNCHED]


def _proves_old_store(machine: Machine) -> bool:
    unknown = machine.work.unverified is UnverifiedReason.UNKNOWN_LAUNCH_REQUEST
    return unknown and machine.state is MachineState.ASSIGNED


def _mark(state: LedgerState, machine: Machine, at: Instant, why: UnverifiedReason) -> None:
    """Mark the machine as assigned with an unknown registration, unless that is impossible."""
    work, assigned = machine.work, machine.state is MachineState.ASSIGNED
    cleared_by_poll = work.unverified is not None and work.unverified.is_cleared_by_poll
    if assigned and cleared_by_poll and why is UnverifiedReason.LISTED_AT_GITHUB:
        with state.changing(machine):
            work.unverified, machine.reason = why, why.explanation
        return
    proven = work.agent_seen or machine.id in state.created_since_start
    if proven or not _may_have_other_runner(state, machine):
        return
    if assigned:
        close_its_runner(state, machine, at, why.explanation)
        state.note(machine, at, "may_run_job", why.explanation)
    else:
        move(state, machine, MachineState.ASSIGNED, at, why.explanation)
    with state.changing(machine):
        work.unverified, work.may_run_job = why, True
        machine.since, machine.progress.assigned_at, machine.absence = at, at, 0.0
        machine.reason, work.runner = why.explanation, None
        work.finished_at, work.finished_reads = None, 0


def _may_have_other_runner(state: LedgerState, machine: Machine) -> bool:
    """Return True if the machine may have got another registration after the store was written."""
    if machine.is_unassigned:
        return True
    runner = state.runners.get(machine.work.runner) if machine.work.runner is not None else None
    untaken = runner is not None and runner.listening_at is None and runner.job is None
    return machine.state is MachineState.ASSIGNED and untaken


def _has_configuration(state: LedgerState, name: RunnerName, at: Instant) -> None:
    """Mark that a machine has the configuration of its runner, because GitHub shows the runner at work."""
    runner = state.runners.get(name)
    machine = state.machines.get(runner.machine) if runner is not None else None
    if machine is None or machine.work.runner != name or machine.work.may_run_job:
        return
    if machine.state is MachineState.ASSIGNED:
        with state.changing(machine):
            machine.work.may_run_job = True
        state.note(machine, at, "may_run_job", "GitHub shows its runner online or at work")


def _dispute(state: LedgerState, job: Job, at: Instant) -> None:
    read = job.read_at is not None and job.read_at >= state.started_at
    if job.state is not JobState.QUEUED or job.demand is None or job.disputed or read:
        return
    state.dispute(job, at, "the store is a restored backup: the job may have run since")


def new_machine(
    provider: ProviderName, listed: ListedMachine, at: Instant, state: MachineState, why: str
) -> Machine:
    """Return a record of the machine. Its ID is made from the provider's ID."""
    return Machine(
        id=MachineId(f"x-{listed.provider_id}"),
        sku=listed.sku,
        provider=provider,
        launch_request=listed.launch_request,
        slot=-1,
        created_at=at,
        state=state,
        since=at,
        placement=Placement(
            dollars_per_hour=listed.dollars_per_hour,
            quota_usage=listed.quota_usage,
            provider_id=listed.provider_id,
            instance_type=listed.instance_type,
            zone=listed.zone,
            capacity_type=listed.capacity_type,
            image=listed.image,
            launch_time=listed.launch_time,
            host=listed.host,
        ),
        reason=why,
    )
