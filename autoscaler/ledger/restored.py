"""Detects that the store is a restored backup, and marks its records as unverified.

- A machine that the store shows as idle may have been assigned after the backup. It counts as assigned until
  its agent polls for an assignment. So does a silent machine from before the start of the controller, until
  GitHub has listed its runners.
- A job that the store shows as queued may have run. It is read at GitHub before a machine is launched for it.
"""

from autoscaler.ledger.deadlines import due
from autoscaler.ledger.machines import close_its_runner, move
from autoscaler.ledger.state import LedgerState
from autoscaler.model.events import MachineMarkedUnverified, RunnersListed
from autoscaler.model.fleet import READY_TRUSTED_FOR
from autoscaler.model.identifiers import Instant, MachineId, RunnerName
from autoscaler.model.jobs import Job, JobState
from autoscaler.model.machines import Machine, MachineState
from autoscaler.model.runners import RunnerState, machine_in_any_name

UNKNOWN_LAUNCH_REQUEST = "its launch request is not in the store"
STORE_IS_OLDER = "the store is older than the machine: it may have been assigned since"
NO_RUNNER_LIST_YET = (
    "silent since the controller started, and GitHub has not listed its runners since"
)
LISTED_AT_GITHUB = "GitHub lists a runner of it that is not in the store"
_REMOVED_BY_A_POLL = frozenset({STORE_IS_OLDER, NO_RUNNER_LIST_YET})
"""A poll of the agent clears these reasons. It does not clear LISTED_AT_GITHUB: GitHub's listing is evidence
of a job, and a job on the machine can poll like the agent."""

_SOON_HEARD = frozenset({MachineState.READY, MachineState.ASSIGNED})
"""Agents of these machines poll. After a start they get some time for this."""


def mark_older_records_unverified(state: LedgerState, at: Instant) -> None:
    """Mark older machines and jobs as unverified if a machine has an unknown launch request.

    Such a machine proves that the store is a restored backup. Costs O(1) while no machine is
    unverified, else O(machines), plus O(jobs) if there is such a machine.
    """
    if not state.counters.possibly_assigned:
        return
    brought = [one.created_at for one in state.machines.values() if _is_proof(one)]
    if not brought:
        return
    before = min(max(brought), state.started_at)
    for machine in tuple(state.machines.values()):
        believed = machine.state in _SOON_HEARD and at < state.started_at + READY_TRUSTED_FOR
        if machine.created_at < before and not believed:
            _mark_machine_unverified(state, machine, at)
    for job in tuple(state.jobs.values()):
        if job.queued_at < before:
            _dispute_job(state, job, at)


def shown_at_github(
    state: LedgerState, name: RunnerName, at: Instant, why: str = STORE_IS_OLDER
) -> None:
    """Mark a runner's machine as assigned, because GitHub shows the runner online or busy.

    A machine without a nonce may be in another machine's slot, so it does not get `why` as its reason.
    """
    runner = state.runners.get(name)
    if runner is not None:
        _was_handed_over(state, name, at)
        return
    found = machine_in_any_name(state.catalogue.fleet, name)
    machine = state.machines.get(found) if found is not None else None
    if machine is None:
        return
    for one in (machine, *_found_with(state, machine)):
        if one.created_at < state.started_at:
            certain = one is machine and one.nonce_hash
            _mark_machine_unverified(state, one, at, why if certain else STORE_IS_OLDER)


def on_runners_listed(state: LedgerState, event: RunnersListed) -> None:
    """Mark the machines of online or busy runners as assigned."""
    if not event.more:
        state.runners_listed_at[event.scope] = event.began_at
    for name in event.at_work:
        shown_at_github(state, name, event.at, LISTED_AT_GITHUB)


def needs_runner_list(state: LedgerState) -> bool:
    """Return True if a machine needs a new listing of runners to be verified. O(machines).

    A machine requested before the start counts, because its attestation will wait for the listing.
    """
    started_at, listed_at = state.started_at, state.every_scope_listed_at
    return any(
        one.is_assignment_unknown(started_at, listed_at)
        or (one.state is MachineState.REQUESTED and one.created_at < started_at)
        for one in state.machines.values()
    )


def on_machine_marked_unverified(state: LedgerState, event: MachineMarkedUnverified) -> None:
    """Mark the machine as unverified: it may have been assigned after the store was written."""
    _mark_machine_unverified(state, state.machines[event.machine], event.at, NO_RUNNER_LIST_YET)


def closed_at_work(state: LedgerState, name: RunnerName, at: Instant) -> None:
    """Mark a registration as handed over if GitHub refused to delete it, because a machine uses it."""
    runner = state.runners.get(name)
    if runner is not None and runner.state is RunnerState.DONE:
        _was_handed_over(state, name, at)


def asked_for_an_assignment(state: LedgerState, machine_id: MachineId, at: Instant) -> None:
    """Mark the machine as ready: its agent polls with the known nonce, so it has no assignment."""
    machine = state.machines.get(machine_id)
    if machine is None or machine.state is not MachineState.ASSIGNED:
        return
    if machine.work.unverified and machine.reason in _REMOVED_BY_A_POLL:
        move(state, machine, MachineState.READY, at, "its agent asks for an assignment")
        with state.changing(machine):
            machine.work.unverified = machine.work.handed_over = False
            machine.work.runner = machine.progress.assigned_at = machine.termination.reason = None
            machine.work.read_at = machine.work.unregistered_at = None
            machine.progress.ready_at = machine.progress.ready_at or at
            machine.due = due(state, machine)
        return
    runner = state.runners.get(machine.work.runner) if machine.work.runner is not None else None
    if runner is not None and runner.handed_over_at is None and machine.work.handed_over:
        with state.changing(machine):
            machine.work.handed_over = False
            machine.due = due(state, machine)


def _found_with(state: LedgerState, machine: Machine) -> list[Machine]:
    """Return machines of the same request without an attestation: their slots may be swapped."""
    request = state.launch_requests.get(machine.launch_request)
    slots = (state.machines.get(slot) for slot in request.slots) if request is not None else ()
    return [one for one in slots if one is not None and one.state is MachineState.LAUNCHED]


def _is_proof(machine: Machine) -> bool:
    return machine.work.unverified and machine.occupies and machine.reason == UNKNOWN_LAUNCH_REQUEST


def _mark_machine_unverified(
    state: LedgerState, machine: Machine, at: Instant, why: str = STORE_IS_OLDER
) -> None:
    """Mark the machine as assigned with an unknown registration, unless that is impossible."""
    if machine.work.unverified and machine.reason in _REMOVED_BY_A_POLL and why == LISTED_AT_GITHUB:
        with state.changing(machine):
            machine.reason = why
        return
    if machine.work.agent_seen or not _may_have_been_assigned_since(state, machine):
        return
    if machine.state is MachineState.ASSIGNED:
        close_its_runner(state, machine, at, why)
        state.note(machine, at, "handed_over", why)
    else:
        move(state, machine, MachineState.ASSIGNED, at, why)
    with state.changing(machine):
        machine.work.unverified = machine.work.handed_over = True
        machine.since, machine.progress.assigned_at, machine.absence = at, at, 0.0
        machine.reason, machine.work.runner = why, None
        machine.work.finished_at, machine.work.finished_reads = None, 0
        machine.due = due(state, machine)


def _may_have_been_assigned_since(state: LedgerState, machine: Machine) -> bool:
    """Return True if the machine may have got another registration after the store was written."""
    if machine.is_unassigned:
        return True
    runner = state.runners.get(machine.work.runner) if machine.work.runner is not None else None
    untaken = runner is not None and runner.listening_at is None and runner.job is None
    return machine.state is MachineState.ASSIGNED and untaken


def _dispute_job(state: LedgerState, job: Job, at: Instant) -> None:
    read = job.read_at is not None and job.read_at >= state.started_at
    if job.state is not JobState.QUEUED or job.demand is None or job.disputed or read:
        return
    state.dispute(job, at, "the store is older than its machines")


def _was_handed_over(state: LedgerState, name: RunnerName, at: Instant) -> None:
    runner = state.runners.get(name)
    machine = state.machines.get(runner.machine) if runner is not None else None
    if machine is None or machine.work.runner != name or machine.work.handed_over:
        return
    if machine.state is MachineState.ASSIGNED:
        with state.changing(machine):
            machine.work.handed_over = True
            machine.due = due(state, machine)
        state.note(machine, at, "handed_over", "GitHub shows its runner online or at work")
