"""Call records and their slots: recorded, sent, answered or unknown, settled.

An answer binds the lowest free slots; what it gave less is failed slots and cooldowns. It never
decides to send, repeat or withdraw.
"""

from collections import deque

from autoscaler.ledger.cooldowns import (
    hold_back,
    hold_back_answered,
    lift_offering,
    strike,
)
from autoscaler.ledger.launch_rate import spend
from autoscaler.ledger.machines import fail, move
from autoscaler.ledger.state import LedgerState
from autoscaler.model.calls import CALL_TRANSITIONS, REPEAT_WINDOW, Call, CallState
from autoscaler.model.catalogue import Offering, most_units
from autoscaler.model.cooldowns import rung_key
from autoscaler.model.events import (
    CallAnswered,
    CallOutcomeUnknown,
    CallPrepared,
    CallRecorded,
    CallSent,
    CallWithdrawn,
    LaunchedMachine,
    LaunchFailure,
)
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, MachineId, Seconds
from autoscaler.model.machines import Machine, MachineState

_WORST_FIRST = (
    FailureClass.CONFIGURATION,
    FailureClass.UNSUPPORTED,
    FailureClass.QUOTA,
    FailureClass.UNKNOWN,
    FailureClass.THROTTLED,
    FailureClass.CAPACITY,
)
SWEEPS_TO_WRITE_OFF = 2
SWEEPS_APART: Seconds = 60.0


def on_call_recorded(state: LedgerState, event: CallRecorded) -> None:
    """Its slots exist and count in the caps, at the dearest of what may be answered."""
    offerings = [state.offerings[key] for key in event.offerings]
    dollars, holds = dearest(offerings)
    call = Call(
        id=event.call,
        sku=event.sku,
        provider=event.provider,
        rung=event.rung,
        capacity_type=event.capacity_type,
        offerings=event.offerings,
        slots=event.slots,
        token=event.token,
        request="",
        state=CallState.RECORDED,
        created_at=event.at,
    )
    state.add(call)
    spend(state, call.provider, event.at, 1, len(call.slots))
    state.note(call, event.at, "recorded", f"{len(event.slots)} x {event.sku}")
    for slot, machine_id in enumerate(event.slots):
        machine = _slot(call, machine_id, slot, event.at, dollars, holds)
        state.add(machine)
        state.note(machine, event.at, "requested", f"call {call.id}")


def on_call_prepared(state: LedgerState, event: CallPrepared) -> None:
    """Its exact request is known."""
    call = state.calls.get(event.call)
    if call is not None and call.state is CallState.RECORDED:
        with state.changing(call):
            call.request = event.request


def on_call_sent(state: LedgerState, event: CallSent) -> None:
    """It is about to leave: from now on machines may exist."""
    call = state.calls.get(event.call)
    if call is None or CallState.SENT not in CALL_TRANSITIONS[call.state]:
        return
    if call.attempts:
        # The machines were paid for by the first sending: there are no more of them.
        spend(state, call.provider, event.at, 1, 0)
    with state.changing(call):
        call.state = CallState.SENT
        call.sent_at = call.sent_at if call.sent_at is not None else event.at
        call.last_sent_at = event.at
        call.attempts += 1
        call.sweeps, call.swept_at = 0, None
    state.note(call, event.at, "sent", f"attempt {call.attempts}")


def on_call_unknown(state: LedgerState, event: CallOutcomeUnknown) -> None:
    """No answer: it is repeated for ten minutes, and its slots wait for two complete lists."""
    call = state.calls.get(event.call)
    if call is None or call.state is not CallState.SENT:
        return
    with state.changing(call):
        call.state = CallState.UNKNOWN
        call.reason = event.message[:500]
    state.note(call, event.at, "unknown", event.message)


def on_call_withdrawn(state: LedgerState, event: CallWithdrawn) -> None:
    """It was never sent: its slots are gone."""
    call = state.calls.get(event.call)
    if call is None or call.state is not CallState.RECORDED:
        return
    spend(state, call.provider, event.at, -1, -len(call.slots))
    for machine in free_slots(state, call):
        move(state, machine, MachineState.FAILED, event.at, "withdrawn")
    _settle(state, call, event.at, "withdrawn", event.reason)


def on_call_answered(state: LedgerState, event: CallAnswered) -> None:
    """Bind what was given, fail the rest, and remember what did not work."""
    call = state.calls.get(event.call)
    if call is None:
        return
    if call.state is CallState.RECORDED:
        spend(state, call.provider, event.at, -1, -len(call.slots))
    slots = deque(free_slots(state, call) or written_off_slots(state, call))
    for launched in event.launched:
        bind(state, call, launched, event.at, slots)
    if event.more:
        return
    left = free_slots(state, call)
    worst = _worst(event)
    for machine in left:
        fail(state, machine, worst[0], event.at, worst[1])
    at_least = event.retry_after or 0.0
    hold_back_answered(state, call, event, at_least)
    if not event.launched and not event.failures:
        nothing = LaunchFailure(FailureClass.CAPACITY, "Empty", "nothing given and no reason")
        hold_back(state, call, nothing, event.at, at_least)
    with state.changing(call):
        call.failure = worst[0] if left else None
        call.reason = worst[1] if left else ""
    detail = f"{len(call.slots) - len(left)} of {len(call.slots)}"
    _settle(state, call, event.at, "answered", f"{detail}: {worst[1]}" if left else detail)


def bind(
    state: LedgerState,
    call: Call,
    launched: LaunchedMachine,
    at: Instant,
    slots: deque[Machine] | None = None,
) -> Machine | None:
    """Give a machine the call's lowest free slot; None if it has one already or none is free.

    `slots` are the slots to choose from where the caller has counted them, else all free ones.
    """
    if launched.provider_id in state.by_provider_id:
        return None
    if slots is None:
        slots = deque(free_slots(state, call) or written_off_slots(state, call))
    if not slots:
        return None
    machine = slots.popleft()
    fill_in(state, machine, call, launched, at)
    move(state, machine, MachineState.LAUNCHED, at, launched.provider_id)
    return machine


def fill_in(
    state: LedgerState, machine: Machine, call: Call, launched: LaunchedMachine, at: Instant
) -> None:
    """Take over what the provider says, and count the machine at what it really is."""
    offering = _offering(state, call, launched)
    with state.changing(machine):
        machine.provider_id = launched.provider_id
        machine.instance_type = launched.instance_type
        machine.zone = launched.zone
        machine.capacity_type = launched.capacity_type
        machine.image = launched.image or machine.image
        machine.launch_time = launched.launch_time or machine.launch_time
        machine.failure = None
        if offering is not None:
            machine.dollars_per_hour = offering.dollars_per_hour
            machine.holds = ((offering.quota_key, offering.quota_units),)
    if offering is not None:
        lift_offering(state, call.sku, offering, machine.created_at, at)


def free_slots(state: LedgerState, call: Call) -> list[Machine]:
    """The call's slots that no machine is bound to, lowest first."""
    slots = (state.machines.get(slot) for slot in call.slots)
    return [m for m in slots if m is not None and m.state is MachineState.REQUESTED]


def written_off_slots(state: LedgerState, call: Call) -> list[Machine]:
    """Slots given up because no answer came: a machine may turn up for them after all."""
    slots = (state.machines.get(slot) for slot in call.slots)
    return [
        m
        for m in slots
        if m is not None
        and m.state is MachineState.FAILED
        and m.provider_id is None
        and m.failure is FailureClass.UNKNOWN
    ]


def count_sweep(state: LedgerState, call: Call, began_at: Instant, at: Instant) -> None:
    """A complete list began: two of them a minute apart, after a repeat or after its time, settle.

    Called after the list's machines were bound.
    """
    if call.state is not CallState.UNKNOWN or call.sent_at is None or call.last_sent_at is None:
        return
    base = call.last_sent_at if call.attempts > 1 else call.sent_at + REPEAT_WINDOW
    last = call.swept_at
    if began_at <= base or (last is not None and began_at < last + SWEEPS_APART):
        return
    with state.changing(call):
        call.sweeps += 1
        call.swept_at = began_at
    left = free_slots(state, call)
    if call.sweeps < SWEEPS_TO_WRITE_OFF and left:
        return
    for machine in left:
        fail(state, machine, FailureClass.UNKNOWN, at, "no answer, and in no list")
    if left:
        strike(state, rung_key(call.sku, call.rung), FailureClass.UNKNOWN, at, call.reason)
    _settle(state, call, at, "written_off", f"{len(left)} of {len(call.slots)} slots")


def dearest(offerings: list[Offering]) -> tuple[float, tuple[tuple[str, int], ...]]:
    """What one slot may cost at most, in dollars an hour and in units of every quota it may use."""
    dollars = max(offering.dollars_per_hour for offering in offerings)
    return dollars, tuple(sorted(most_units(offerings).items()))


def _slot(
    call: Call,
    machine: MachineId,
    slot: int,
    at: Instant,
    dollars: float,
    holds: tuple[tuple[str, int], ...],
) -> Machine:
    return Machine(
        id=machine,
        sku=call.sku,
        provider=call.provider,
        call=call.id,
        slot=slot,
        state=MachineState.REQUESTED,
        since=at,
        created_at=at,
        dollars_per_hour=dollars,
        holds=holds,
    )


def _offering(state: LedgerState, call: Call, launched: LaunchedMachine) -> Offering | None:
    for key in call.offerings:
        offering = state.offerings.get(key)
        if (
            offering is not None
            and offering.instance_type == launched.instance_type
            and offering.zone == launched.zone
            and offering.capacity_type == launched.capacity_type
        ):
            return offering
    return None


def _worst(event: CallAnswered) -> tuple[FailureClass, str]:
    for failure_class in _WORST_FIRST:
        for failure in event.failures:
            if failure.failure is failure_class:
                return failure_class, f"{failure.code}: {failure.message}"[:300]
    return FailureClass.CAPACITY, "the provider gave fewer and no reason"


def _settle(state: LedgerState, call: Call, at: Instant, event: str, detail: str) -> None:
    if call.state is not CallState.SETTLED:
        with state.changing(call):
            call.state = CallState.SETTLED
            call.settled_at = at
    state.note(call, at, event, detail)
