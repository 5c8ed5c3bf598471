"""Applies events of launch requests and their slots: recorded, sent, answered or unknown, settled.

An answer binds its machines to the lowest free slots. The other slots fail and cause cooldowns.
"""

from collections import deque

from autoscaler.ledger.failures.cooldowns import hold_back, hold_back_answered, note_failed_launch
from autoscaler.ledger.failures.failure_counts import count_failure
from autoscaler.ledger.machines.slots import (
    bind,
    free_slots,
    written_off_slots,
)
from autoscaler.ledger.machines.states import fail, move
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import LaunchTokens, most_units
from autoscaler.model.changes import may_become
from autoscaler.model.cooldowns import launch_option_key
from autoscaler.model.events import (
    LaunchFailure,
    LaunchOutcomeUnknown,
    LaunchRequestAnswered,
    LaunchRequestCancelled,
    LaunchRequestPrepared,
    LaunchRequestRecorded,
    LaunchRequestSent,
)
from autoscaler.model.identifiers import Instant, ProviderName, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import (
    REPEAT_WINDOW,
    LaunchRequest,
    LaunchRequestState,
)
from autoscaler.model.machines.machine import Machine, MachineState, Placement
from autoscaler.model.wording import counted

_WORST_FIRST = (
    FailureClass.CONFIGURATION,
    FailureClass.UNSUPPORTED,
    FailureClass.QUOTA,
    FailureClass.UNKNOWN,
    FailureClass.THROTTLED,
    FailureClass.CAPACITY,
)
LISTINGS_TO_WRITE_OFF = 2
LISTINGS_APART: Seconds = 60.0


def on_launch_request_recorded(state: LedgerState, event: LaunchRequestRecorded) -> None:
    """Create the request and its slots. They count against limits at the most expensive offering."""
    launch = event.launch
    offerings = (state.offering(launch.sku, key) for key in launch.offerings)
    known = [one for one in offerings if one is not None]
    dollars = max(offering.dollars_per_hour for offering in known)
    quota_usage = tuple(sorted(most_units(known).items()))
    request = LaunchRequest(
        id=event.launch_request,
        sku=launch.sku,
        provider=launch.provider,
        option=launch.option,
        capacity_type=launch.capacity_type,
        offerings=launch.offerings,
        slots=event.slots,
        token=event.token,
        body="",
        state=LaunchRequestState.RECORDED,
        created_at=event.at,
    )
    state.add(request)
    spend(state, request.provider, event.at, 1, len(request.slots))
    state.note(request, event.at, "recorded", f"{len(event.slots)} x {launch.sku} {launch.reason}")
    for slot, machine_id in enumerate(event.slots):
        machine = Machine(
            id=machine_id,
            sku=request.sku,
            provider=request.provider,
            launch_request=request.id,
            slot=slot,
            created_at=event.at,
            state=MachineState.REQUESTED,
            since=event.at,
            placement=Placement(dollars, quota_usage),
        )
        state.add(machine)
        state.note(machine, event.at, "requested", f"launch request {request.id} {launch.reason}")


def on_launch_request_prepared(state: LedgerState, event: LaunchRequestPrepared) -> None:
    """Store the exact bytes of the request."""
    request = state.launch_requests.get(event.launch_request)
    if request is not None and request.state is LaunchRequestState.RECORDED:
        with state.changing(request):
            request.body = event.body


def on_launch_request_sent(state: LedgerState, event: LaunchRequestSent) -> None:
    """Mark the request as sent: from now on its machines may exist."""
    request = state.launch_requests.get(event.launch_request)
    if request is None or not may_become(request, LaunchRequestState.SENT):
        return
    if request.attempts:
        # The first attempt already used tokens for the machines.
        spend(state, request.provider, event.at, 1, 0)
    with state.changing(request):
        state.enter(request, LaunchRequestState.SENT)
        request.sent_at = request.sent_at if request.sent_at is not None else event.at
        request.last_sent_at = event.at
        request.attempts += 1
        request.full_listings, request.last_listed_at = 0, None
    state.note(request, event.at, "sent", f"attempt {request.attempts}")


def on_launch_outcome_unknown(state: LedgerState, event: LaunchOutcomeUnknown) -> None:
    """Mark the outcome as unknown. The slots wait for a repeat or for two complete listings.

    The provider gets no launch request before the time that it named.
    """
    request = state.launch_requests.get(event.launch_request)
    if request is None or request.state is not LaunchRequestState.SENT:
        return
    with state.changing(request):
        state.enter(request, LaunchRequestState.UNKNOWN)
        request.reason = event.message[:500]
    if event.retry_after is not None:
        refused = LaunchFailure(FailureClass.THROTTLED, "RetryAfter", event.message)
        hold_back(state, request, refused, event.at, event.retry_after)
    state.note(request, event.at, "unknown", event.message)


def on_launch_request_cancelled(state: LedgerState, event: LaunchRequestCancelled) -> None:
    """Fail the slots of a request that was never sent."""
    request = state.launch_requests.get(event.launch_request)
    if request is None or request.state is not LaunchRequestState.RECORDED:
        return
    spend(state, request.provider, event.at, -1, -len(request.slots))
    for machine in free_slots(state, request):
        move(state, machine, MachineState.FAILED, event.at, "cancelled")
    _settle(state, request, event.at, "cancelled", event.reason)


def on_launch_request_answered(state: LedgerState, event: LaunchRequestAnswered) -> None:
    """Bind the machines to slots, fail the other slots, and put on hold what failed."""
    request = state.launch_requests.get(event.launch_request)
    if request is None:
        return
    if request.state is LaunchRequestState.RECORDED:
        spend(state, request.provider, event.at, -1, -len(request.slots))
    slots = deque(free_slots(state, request) or written_off_slots(state, request))
    for launched in event.launched:
        machine = bind(state, request, launched, event.at, slots)
        if machine is not None and launched.created and machine.created_at < state.started_at:
            state.created_since_start.add(machine.id)
    if event.more:
        return
    left = free_slots(state, request)
    worst = _worst(event)
    for machine in left:
        fail(state, machine, worst[0], event.at, worst[1])
    at_least = event.retry_after or 0.0
    hold_back_answered(state, request, event, at_least)
    for failure in dict.fromkeys(event.failures):
        note_failed_launch(state, request, failure, event.at)
    if not event.launched and not event.failures:
        nothing = LaunchFailure(
            FailureClass.CAPACITY, "Empty", "the provider launched no machine and gave no reason"
        )
        hold_back(state, request, nothing, event.at, at_least)
        note_failed_launch(state, request, nothing, event.at)
    with state.changing(request):
        request.failure = worst[0] if left else None
        request.reason = worst[1] if left else ""
    detail = f"{len(request.slots) - len(left)} of {len(request.slots)}"
    if left:
        detail = f"{detail}: {worst[1]}"
    _settle(state, request, event.at, "answered", detail, worst[0] if left else "")


def count_full_listing(
    state: LedgerState, request: LaunchRequest, began_at: Instant, at: Instant
) -> None:
    """Count a complete listing. Two of them, a minute apart, settle a request without an answer.

    Only listings count that began after a repeat or after the retry window. Call this after the
    listing's machines were bound.
    """
    if (
        request.state is not LaunchRequestState.UNKNOWN
        or request.sent_at is None
        or request.last_sent_at is None
    ):
        return
    base = request.last_sent_at if request.attempts > 1 else request.sent_at + REPEAT_WINDOW
    last = request.last_listed_at
    if began_at <= base or (last is not None and began_at < last + LISTINGS_APART):
        return
    with state.changing(request):
        request.full_listings += 1
        request.last_listed_at = began_at
    left = free_slots(state, request)
    if request.full_listings < LISTINGS_TO_WRITE_OFF and left:
        return
    detail, unknown = f"{len(left)} of {counted(len(request.slots), 'slot')}", FailureClass.UNKNOWN
    for machine in left:
        fail(state, machine, unknown, at, "no answer, and no listing shows it")
    if left:
        detail = f"{detail}: {request.reason}"
        key = launch_option_key(request.sku, request.option)
        no_answer = LaunchFailure(unknown, "NoAnswer", request.reason)
        count_failure(state, key, unknown, at, request.reason, error=no_answer.code)
        note_failed_launch(state, request, no_answer, at)
    _settle(state, request, at, "written_off", detail, unknown if left else "")


def _worst(event: LaunchRequestAnswered) -> tuple[FailureClass, str]:
    for failure_class in _WORST_FIRST:
        for failure in event.failures:
            if failure.failure is failure_class:
                return failure_class, failure.text
    return FailureClass.CAPACITY, "the provider launched fewer machines and gave no reason"


def _settle(
    state: LedgerState, request: LaunchRequest, at: Instant, event: str, detail: str, code: str = ""
) -> None:
    if request.state is not LaunchRequestState.SETTLED:
        with state.changing(request):
            state.enter(request, LaunchRequestState.SETTLED)
            request.settled_at = at
    state.note(request, at, event, detail, code)


def launch_tokens(state: LedgerState, provider: ProviderName, at: Instant) -> LaunchTokens:
    """Return how many requests and machines a provider with a rate accepts now."""
    rate = state.catalogue.launch_rates[provider]
    tokens, since = state.launch_levels.get(provider, (rate.full, at))
    return rate.refilled(tokens, at - since)


def spend(
    state: LedgerState, provider: ProviderName, at: Instant, launch_requests: int, machines: int
) -> None:
    """Use tokens. Negative numbers give tokens of unsent requests back."""
    if provider in state.catalogue.launch_rates:
        tokens = launch_tokens(state, provider, at).less(launch_requests, machines)
        state.launch_levels[provider] = (tokens, at)
