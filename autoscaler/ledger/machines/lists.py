"""Applies a provider's listing of machines.

A listing binds machines whose launch answer was lost, and shows terminated and unknown machines. A missing
machine is terminated or lost only after two complete listings, a minute apart, without it.
"""

from collections import deque
from dataclasses import replace
from itertools import filterfalse

from autoscaler.ledger.failures.cooldowns import hold_back, note_failed_boot, note_failed_launch
from autoscaler.ledger.failures.host_failures import is_of_host
from autoscaler.ledger.job_holds import left_idle
from autoscaler.ledger.machines import foreign
from autoscaler.ledger.machines.interruptions import (
    is_unexplained,
    note_interruption,
    note_taken,
)
from autoscaler.ledger.machines.launch_requests import count_full_listing
from autoscaler.ledger.machines.slots import bind, free_slots
from autoscaler.ledger.machines.states import (
    close_its_runner,
    end,
    fail,
    found_reason,
    leave,
)
from autoscaler.ledger.machines.unverified import (
    adopt,
    check_age_of_store,
    listed_again,
    new_machine,
    shown_as_assigned,
)
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import may_become
from autoscaler.model.events import (
    LaunchFailure,
    ListedMachine,
    MachinesListed,
    QuotasRead,
)
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import (
    REPORTED_FROM_ATTEMPT,
    ExitReason,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.machines.unverified import UnverifiedReason

ABSENT = "not listed any more"
ABSENCE_CONFIRMED_AFTER: Seconds = 60.0

_MOST_WORDS = 500
"""Characters kept of what a provider says of a machine."""

_EXPECTED_TO_LEAVE = frozenset({MachineState.TERMINATING, MachineState.EXITED, MachineState.FAILED})
_OF_ONE_HOST = (FailureScope.MACHINE, FailureScope.HOST)
_NOT_YET_UP = frozenset({MachineState.LAUNCHED, MachineState.BOOTED})


def on_machines_listed(state: LedgerState, event: MachinesListed) -> None:
    """Apply the machines that the listing shows, then those that a complete listing does not show."""
    own, known = state.catalogue.installations.all, state.unverified_existing
    for listed in event.machines:
        if listed.provider_id in state.by_provider_id:
            foreign.stop_counting(state, event, listed.provider_id)  # it had another tag before
            # Ignore its tags: they may have a former ID that is not kept any more.
            _see_ours(state, listed, event.at)
        elif listed.installation not in own:
            foreign.count(state, event, listed)
        elif listed.terminated:
            _see_ended_unbound(state, listed, event.at)
        else:
            foreign.stop_counting(state, event, listed.provider_id)
            _see_unbound(state, event, listed)
    if event.complete:
        _believe_absence(state, event)
        state.machines_listed_at[event.provider] = event.began_at
    # Check once a listing, and at once if this part has brought an unverified machine.
    if not event.more or state.unverified_existing > known:
        check_age_of_store(state, event.at)


def on_quotas_read(state: LedgerState, event: QuotasRead) -> None:
    """Replace the provider's quotas."""
    prefix = f"{event.provider}/"
    others = {key: units for key, units in state.quotas.items() if not key.startswith(prefix)}
    state.quotas = others | dict(event.quotas)


def _believe_absence(state: LedgerState, event: MachinesListed) -> None:
    shown, last = event.shown, {listed.provider_id for listed in event.machines}
    # One step of the event loop goes through all machines, so it runs no Python code for each of them.
    absent = filterfalse(shown.__contains__, state.by_provider_id)
    machines = [state.machines[state.by_provider_id[provider_id]] for provider_id in absent]
    for machine in sorted(machines, key=lambda one: (one.created_at, one.launch_request, one.slot)):
        if machine.placement.provider_id not in last and machine.provider == event.provider:
            _miss(state, machine, event)
    foreign.stop_counting_absent(state, event, last)
    for request in tuple(state.open_launch_requests.values()):
        if request.provider == event.provider:
            count_full_listing(state, request, event.began_at, event.at)


def _see_ours(state: LedgerState, listed: ListedMachine, at: Instant) -> None:
    machine = state.machines[state.by_provider_id[listed.provider_id]]
    if listed.not_admitted and machine.work.last_seen is not None:
        # Its host had room for it: the fault is this machine's alone.
        listed = replace(listed, failure=FailureClass.CAPACITY, scope=FailureScope.MACHINE)
    was_absent = machine.absent_since is not None
    place = machine.placement
    new = (
        listed.image or place.image,
        listed.launch_time or place.launch_time,
        listed.host or place.host,
    )
    if new != (place.image, place.launch_time, place.host) or was_absent:
        with state.changing(machine):
            place.image, place.launch_time, place.host = new
            machine.absent_since = None
    if listed.assigned:
        shown_as_assigned(state, machine, at)
    _see_that_it_stays(state, machine, listed)
    _see_what_it_waits_for(state, machine, listed)
    if listed.terminated or (listed.leaving and state.evidence.proves_unused(machine)):
        _ended_by_itself(state, machine, listed, at)
    elif listed.cannot_start and machine.state in _NOT_YET_UP:
        _cannot_start(state, machine, listed, at)
    elif was_absent and not machine.occupies:
        listed_again(state, machine, at)
    elif listed.leaving and (machine.state not in _EXPECTED_TO_LEAVE or is_unexplained(machine)):
        # A notice may be lost, and a pod may be removed without a list that shows its end.
        _note_interruption(state, machine, listed, at)


def _see_that_it_stays(state: LedgerState, machine: Machine, listed: ListedMachine) -> None:
    """Store the provider's state of a machine after more than one request to terminate it."""
    if (
        machine.state is not MachineState.TERMINATING
        or machine.termination.attempts < REPORTED_FROM_ATTEMPT - 1
    ):
        return
    said = f"{listed.state or 'listed'}, {listed.reason}" if listed.reason else listed.state
    if not listed.terminated and said[:_MOST_WORDS] != machine.termination.provider_state:
        with state.changing(machine):
            machine.termination.provider_state = said[:_MOST_WORDS]


def _see_what_it_waits_for(state: LedgerState, machine: Machine, listed: ListedMachine) -> None:
    """Store what the provider says of a machine whose agent has not reported yet."""
    starts = machine.state is MachineState.LAUNCHED and machine.work.last_seen is None
    if starts and listed.reason[:_MOST_WORDS] != machine.progress.stage:
        with state.changing(machine):
            machine.progress.stage = listed.reason[:_MOST_WORDS]


def _ended_by_itself(
    state: LedgerState, machine: Machine, listed: ListedMachine, at: Instant
) -> None:
    """Apply that a machine shuts down or is terminated without a request of the controller.

    Before the machine was ready, the provider's reason is a launch failure and puts on hold what it
    concerns. Later, only lack of capacity (a spot interruption) or the loss of its host does.
    """
    reason = listed.reason or "ended"
    failure, early = listed.failure, machine.state in _NOT_YET_UP
    if machine.occupies and (early or failure is FailureClass.CAPACITY):
        _hold_back(state, machine, listed, at)
    if not early:
        _note_interruption(state, machine, listed, at)
    if early and failure is None:
        of_host = listed.scope is FailureScope.HOST
        note_failed_boot(state, machine, FailureClass.UNKNOWN, at, reason, of_host=of_host)
    if early:
        fail(state, machine, failure or FailureClass.UNKNOWN, at, reason)
    if listed.terminated:
        _gone(state, machine, at, reason)
    else:
        leave(state, machine, at, reason)


def _note_interruption(
    state: LedgerState, machine: Machine, listed: ListedMachine, at: Instant
) -> None:
    """Note that the provider takes a machine back, or took it, for lack of capacity.

    A deletion by another client counts as an interruption, too. No notice arrived, or not yet. The machine
    existed when its agent last sent a request.
    """
    short = listed.failure is FailureClass.CAPACITY
    possible = machine.occupies or is_unexplained(machine)
    if (short and possible) or (listed.deleted and _controller_asked_for_no_end(machine)):
        alive_at = machine.work.last_seen or machine.since
        alone = not short or listed.scope in _OF_ONE_HOST
        kind = NoticeKind.SCHEDULED_CHANGE if alone else NoticeKind.SPOT_INTERRUPTION
        note_interruption(state, machine, kind, alive_at, at, listed.reason or "ended")


def _controller_asked_for_no_end(machine: Machine) -> bool:
    """Return True if a machine had a runner, and the controller has not asked for its end.

    The controller moves a machine to `terminating` before it deletes it.
    """
    if machine.state is MachineState.EXITED:
        return machine.work.exit_reason is ExitReason.STOPPED
    return machine.state in (MachineState.ASSIGNED, MachineState.LOST)


def _cannot_start(state: LedgerState, machine: Machine, listed: ListedMachine, at: Instant) -> None:
    """Mark a machine as failed that cannot start, so that the planner terminates it.

    Not after a restart, until its record is proven: another container of the pod may run its job.
    """
    if not state.evidence.proves_unused(machine):
        return
    _hold_back(state, machine, listed, at)
    with state.changing(machine):
        machine.termination.reason = TerminationReason.CANNOT_START
    fail(state, machine, listed.failure or FailureClass.UNKNOWN, at, listed.reason)


_UNKNOWN_IMAGE = "of unknown id"


def _hold_back(state: LedgerState, machine: Machine, listed: ListedMachine, at: Instant) -> None:
    """Put on hold what the provider's reason concerns, if it has a class. A host that fails counts first."""
    request = state.launch_requests.get(machine.launch_request)
    if request is None or listed.failure is None:
        return
    message = listed.reason.removeprefix(listed.error).removeprefix(": ")
    failure = LaunchFailure(listed.failure, listed.error, message, machine.offering, listed.scope)
    of_host = listed.scope is FailureScope.HOST and (
        # A machine that was ready has shown that its host works. It ended for a reason of its own.
        machine.state not in _NOT_YET_UP
        or is_of_host(state, machine, listed.failure, at, listed.reason)
    )
    if not of_host:
        hold_back(state, request, failure, at, image=machine.placement.image or _UNKNOWN_IMAGE)
    note_failed_launch(state, request, failure, at)


def _see_unbound(state: LedgerState, event: MachinesListed, listed: ListedMachine) -> None:
    request = state.launch_requests.get(listed.launch_request)
    if request is None or request.sent_at is None:
        # This installation's ID and an unknown or unsent request: the store is a restored backup.
        unknown = UnverifiedReason.UNKNOWN_LAUNCH_REQUEST
        adopt(state, event.provider, listed, event.at, unknown)
        return
    machine = bind(state, request, listed, event.at)
    if machine is not None and listed.assigned:
        shown_as_assigned(state, machine, event.at)
    if machine is None:
        # The machine may be of a slot that was pruned from memory, and may run a job.
        if all(slot in state.machines for slot in request.slots):
            _add_surplus(state, event, listed)
        else:
            adopt(state, event.provider, listed, event.at, UnverifiedReason.PRUNED_SLOT)


def _see_ended_unbound(state: LedgerState, listed: ListedMachine, at: Instant) -> None:
    """Bind a machine that has ended already to a free slot of its launch request, and end its record.

    Otherwise a repeat of the request would bind it as launched. A pod that ended keeps its name, so that the
    API server answers 409 (Kubernetes documentation, "Object Names and IDs"), and CreateFleet answers a
    repeated client token with the same instances.
    """
    request = state.launch_requests.get(listed.launch_request)
    if request is None or request.sent_at is None:
        return
    machine = bind(state, request, listed, at, deque(free_slots(state, request)))
    if machine is not None:
        with state.changing(machine):
            machine.placement.host = listed.host
        _ended_by_itself(state, machine, listed, at)


def _add_surplus(state: LedgerState, event: MachinesListed, listed: ListedMachine) -> None:
    """Create a failed record for a machine that is one too many. The planner terminates it."""
    why = "its launch request has no slot for it"
    machine = new_machine(event.provider, listed, event.at, MachineState.FAILED, why)
    state.add(machine)
    state.note(machine, event.at, "adopted", machine.reason)


def _miss(state: LedgerState, machine: Machine, event: MachinesListed) -> None:
    if not machine.occupies or machine.since >= event.began_at:
        return
    if machine.absent_since is None:
        with state.changing(machine):
            machine.absent_since = event.began_at
    elif event.began_at - machine.absent_since >= ABSENCE_CONFIRMED_AFTER:
        _gone(state, machine, event.at, ABSENT)


def _gone(state: LedgerState, machine: Machine, at: Instant, reason: str) -> None:
    to = MachineState.TERMINATED
    if machine.state not in _EXPECTED_TO_LEAVE and machine.absent_since is not None:
        to = MachineState.LOST
    if not may_become(machine, to):
        return  # an earlier listing showed the same
    if machine.state in _NOT_YET_UP:
        with state.changing(machine):
            machine.failure = FailureClass.UNKNOWN
        note_failed_boot(state, machine, FailureClass.UNKNOWN, at, reason, of_host=False)
    lost = to is MachineState.LOST
    code = TerminationReason.LOST if lost else found_reason(state, machine)
    if machine.state is MachineState.ASSIGNED:
        note_taken(state, machine, at)  # no exit was reported
    left_idle(state, machine, at)
    close_its_runner(state, machine, at, f"its machine is terminated: {reason}")
    end(state, machine, to, code, at, reason)
