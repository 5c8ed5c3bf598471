"""Puts what failed on hold, for longer with each failure in a row."""

from dataclasses import replace

from autoscaler.ledger.failures.failure_counts import count_failure, end_hold
from autoscaler.ledger.failures.host_failures import is_of_host, note_ready
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import CapacityType, Offering
from autoscaler.model.changes import FailedLaunch, row_of
from autoscaler.model.cooldowns import (
    IN_A_ROW,
    Cooldown,
    boots_key,
    capacity_type_key,
    exits_key,
    launch_option_key,
    offering_key,
    open_circuit,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.events import LaunchFailure, LaunchRequestAnswered
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine

FAILED_MACHINES = Backoff(30.0, 900.0)
"""Seconds between launches while machines do not get ready or their runners exit at once. Each costs money."""


_MAY_BE_OF_ONE_OVERRIDE = frozenset({FailureClass.CONFIGURATION, FailureClass.UNKNOWN})
_NOT_FOR_WANT_OF_CAPACITY = _MAY_BE_OF_ONE_OVERRIDE | {FailureClass.UNSUPPORTED}


def hold_back_answered(
    state: LedgerState,
    request: LaunchRequest,
    answer: LaunchRequestAnswered,
    at_least: Seconds = 0.0,
) -> None:
    """Put on hold what the failures of one answer concern.

    An error of one override puts only its offering on hold, and only for the request's SKU, because
    other SKUs have other images. The launch option is put on hold only if every override failed and
    no machine was launched.
    """
    failures = [replace(f, offering=request.offering(f.offering)) for f in answer.failures]
    wrong = {f.offering for f in failures if f.failure in _NOT_FOR_WANT_OF_CAPACITY}
    every = not answer.launched and wrong.issuperset(request.offerings)
    for failure in failures:
        named = failure.offering if failure.offering in request.offerings else None
        of_one = named is not None and failure.scope is None
        if failure.failure is FailureClass.CONFIGURATION and answer.launched:
            of_one = named is not None
            if not of_one:
                continue
        if of_one and not every and failure.failure in _MAY_BE_OF_ONE_OVERRIDE:
            key = sku_offering_key(request.sku, str(named))
            _count_refusal(state, key, failure, failure.failure, answer.at, at_least)
        else:
            hold_back(state, request, failure, answer.at, at_least)
    if every and all(f.failure is FailureClass.UNSUPPORTED for f in answer.failures):
        key, refused = launch_option_key(request.sku, request.option), FailureClass.CONFIGURATION
        _count_refusal(state, key, answer.failures[0], refused, answer.at, at_least)


def hold_back(
    state: LedgerState,
    request: LaunchRequest,
    failure: LaunchFailure,
    at: Instant,
    at_least: Seconds = 0.0,
    image: str = "",
) -> None:
    """Put on hold exactly what a failure concerns. `image` as in `count_failure`.

    A failure may name an offering that is not in the catalogue any more. It says nothing about others.
    """
    named = request.offering(failure.offering)
    known = named in request.offerings or named in state.offerings
    keys = (named,) if named is not None and known else request.offerings
    for key in sorted(_reached(state, request, failure, keys)):
        _count_refusal(state, key, failure, failure.failure, at, at_least, image)


def note_failed_launch(
    state: LedgerState, request: LaunchRequest, failure: LaunchFailure, at: Instant
) -> None:
    """Add a failure to the history of the SKU's failed launches, with its offering if it names one."""
    where = request.offering(failure.offering) or f"all offerings at {request.provider}"
    code, reason = failure.failure, failure.text
    state.note_row(row_of(FailedLaunch(at, request.sku, request.id, where, code, reason)))


def _count_refusal(
    state: LedgerState,
    key: str,
    failure: LaunchFailure,
    as_class: FailureClass,
    at: Instant,
    at_least: Seconds,
    image: str = "",
) -> None:
    count_failure(state, key, as_class, at, failure.text, at_least, image, failure.code)


def _reached(
    state: LedgerState, request: LaunchRequest, failure: LaunchFailure, keys: tuple[str, ...]
) -> set[str]:
    offerings = [state.offerings[key] for key in keys if key in state.offerings]
    match failure.scope:
        case FailureScope.ZONE:
            return {zone_key(request.provider, offering.zone) for offering in offerings}
        case FailureScope.CAPACITY_TYPE:
            return {capacity_type_key(request.provider, request.capacity_type)}
        case FailureScope.PROVIDER:
            return {capacity_type_key(request.provider, kind) for kind in CapacityType}
        case FailureScope.MACHINE:
            return set()
    match failure.failure:
        case FailureClass.CAPACITY | FailureClass.UNSUPPORTED:
            return {offering_key(key) for key in keys}
        case FailureClass.QUOTA:
            return {quota_key(offering.quota_key) for offering in offerings}
        case FailureClass.THROTTLED:
            return {throttle_key(request.provider)}
    return {launch_option_key(request.sku, request.option)}


_NOT_READY = frozenset(
    {FailureClass.UNKNOWN, FailureClass.BOOT_DEADLINE, FailureClass.HEALTH_CHECK}
)
"""Why machines do not become ready. They count as one class: the same image may fail in several ways."""


def note_failed_boot(
    state: LedgerState,
    machine: Machine,
    failure: FailureClass,
    at: Instant,
    reason: str,
    *,
    of_host: bool = True,
) -> None:
    """Count a machine that did not become ready: from the third in a row, its option is on hold.

    With `of_host`, the machine's host counts first. `failure` is one of `_NOT_READY`, and the reason code of
    jobs that wait for this hold. The SKU's circuit breaker opens, too: it launches one probe at a time, as
    another option may work.
    """
    where = f"machine {machine.id}"
    failed = FailedLaunch(at, machine.sku, machine.launch_request, where, failure, reason)
    state.note_row(row_of(failed))
    key = _option_of(state, machine)
    if key is None or (of_host and is_of_host(state, machine, failure, at, reason)):
        return
    _count(state, key, failure, at, reason)
    boots = boots_key(machine.sku)
    failures = _machines_in_a_row(state.cooldowns.get(boots)) + 1
    state.set_cooldown(Cooldown(boots, at, failures, reason[:300], failure))
    if failures == IN_A_ROW:
        state.note(machine, at, "circuit_opened", reason)


def note_good_boot(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Count a machine that became ready: end the holds of its host, option, SKU, zone and capacity type."""
    note_ready(state, machine, at)
    key = _option_of(state, machine)
    if key is not None:
        end_hold(state, key, at)
        _close_circuit(state, boots_key(machine.sku), machine, at)
    _end_hold_by(state, zone_key(machine.provider, machine.placement.zone), machine.created_at, at)
    if machine.placement.capacity_type:
        kind = CapacityType(machine.placement.capacity_type)
        _end_hold_by(state, capacity_type_key(machine.provider, kind), machine.created_at, at)


def note_early_exit(state: LedgerState, machine: Machine, at: Instant, said: str) -> None:
    """Count a runner that exited at once without a job: from the third in a row, its SKU is on hold."""
    reason = f"the runner of machine {machine.id} exited without a job: {said}"
    key, failure = exits_key(machine.sku), FailureClass.UNKNOWN
    if _count(state, key, failure, at, reason) == IN_A_ROW:
        state.note(machine, at, "circuit_opened", reason)


def note_job_given(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Close the SKU's circuit breaker: GitHub gave a runner of this machine a job.

    If GitHub refused an image, only a job on that image closes the breaker.
    """
    known = state.cooldowns.get(exits_key(machine.sku))
    if known is not None and known.image and known.image != machine.placement.image:
        return
    _close_circuit(state, exits_key(machine.sku), machine, at)


def _count(state: LedgerState, key: str, failure: FailureClass, at: Instant, reason: str) -> int:
    """Count one more failure in a row and return their number; 0 if `key` is on hold."""
    known = state.cooldowns.get(key)
    if known is not None and known.until > at:
        return 0
    failures = _machines_in_a_row(known) + 1
    if open_circuit(state.cooldowns, key) is not None:
        # It stays open if failures of another class opened it.
        failures = max(failures, IN_A_ROW)
    hold = 0.0
    if failures >= IN_A_ROW:
        hold = FAILED_MACHINES.delay(failures - IN_A_ROW)
    state.set_cooldown(Cooldown(key, at + hold, failures, reason[:300], failure))
    return failures


def _machines_in_a_row(known: Cooldown | None) -> int:
    """Return the number of failed machines in a row, else 0."""
    return known.failures if known is not None and known.failure in _NOT_READY else 0


def _close_circuit(state: LedgerState, key: str, machine: Machine, at: Instant) -> None:
    if open_circuit(state.cooldowns, key) is not None:
        state.note(machine, at, "circuit_closed")
    end_hold(state, key, at)


def _option_of(state: LedgerState, machine: Machine) -> str | None:
    request = state.launch_requests.get(machine.launch_request)
    return launch_option_key(request.sku, request.option) if request is not None else None


def end_holds_of_launch(
    state: LedgerState, request: LaunchRequest, offering: Offering, asked_at: Instant, at: Instant
) -> None:
    """End the holds that a machine contradicts, which was requested at `asked_at` and comes from an offering.

    They are those of the offering, its quota and the configuration of the launch option. A hold of machines
    that could not start goes on until one becomes ready.
    """
    option = launch_option_key(request.sku, request.option)
    refused = state.cooldowns.get(option)
    if refused is not None and refused.failure is FailureClass.CONFIGURATION and not refused.image:
        _end_hold_by(state, option, asked_at, at)
    _end_hold_by(state, sku_offering_key(request.sku, offering.key), asked_at, at)
    _end_hold_by(state, offering_key(offering.key), asked_at, at)
    _end_hold_by(state, quota_key(offering.quota_key), asked_at, at)
    _end_hold_by(state, throttle_key(offering.provider), asked_at, at)


def _end_hold_by(state: LedgerState, key: str, asked_at: Instant, at: Instant) -> None:
    """End a hold, unless the request was sent before the hold ended: then it proves nothing."""
    known = state.cooldowns.get(key)
    if known is not None and asked_at >= known.until:
        end_hold(state, key, at)
