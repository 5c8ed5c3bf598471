"""How long something that failed is held back, growing with each failure in a row.

It never decides what to launch instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.ledger.state import LedgerState
from autoscaler.model.calls import Call
from autoscaler.model.catalogue import CapacityType, Offering
from autoscaler.model.cooldowns import (
    IN_A_ROW,
    Cooldown,
    boots_key,
    capacity_type_key,
    exits_key,
    offering_key,
    on_trial,
    quota_key,
    rung_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.events import CallAnswered, LaunchFailure
from autoscaler.model.failures import FailureClass, Reach
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.machines import Machine


@dataclass(frozen=True, slots=True)
class Growth:
    """The first hold and the longest one, in seconds; each further strike doubles it."""

    first: Seconds
    longest: Seconds

    def hold(self, strikes_before: int) -> Seconds:
        """How long after so many strikes before this one."""
        return min(self.first * 2.0 ** min(strikes_before, 16), self.longest)


GROWTH: Mapping[FailureClass, Growth] = {
    # Karpenter caches an offering without capacity for 3 minutes; a quota deserves a longer hold.
    FailureClass.CAPACITY: Growth(180.0, 1800.0),
    FailureClass.QUOTA: Growth(600.0, 3600.0),
    FailureClass.THROTTLED: Growth(5.0, 60.0),
    FailureClass.CONFIGURATION: Growth(60.0, 3600.0),
    # AWS brings an instance type to another zone within months, not within minutes.
    FailureClass.UNSUPPORTED: Growth(6 * 3600.0, 24 * 3600.0),
    FailureClass.UNKNOWN: Growth(30.0, 900.0),
}


def strike(
    state: LedgerState,
    key: str,
    failure: FailureClass,
    at: Instant,
    reason: str,
    at_least: Seconds = 0.0,
) -> None:
    """Hold `key` back. Failures of calls that were under way together count as one strike.

    A row is of one class: minutes of throttling make no first mistake of ours a long hold. Of two
    holds of two classes the one that ends later stays.
    """
    known = state.cooldowns.get(key)
    row = _row(known, failure)
    in_force = known.until if known is not None and known.until > at else at
    if row and in_force > at:
        strikes, hold = row, 0.0
    else:
        strikes, hold = row + 1, GROWTH[failure].hold(row)
    until = at + max(hold, at_least)
    if until > in_force:
        state.cool(Cooldown(key, until, strikes, reason, failure))


_MAY_BE_OF_ONE_OVERRIDE = frozenset({FailureClass.CONFIGURATION, FailureClass.UNKNOWN})
_NOT_FOR_WANT_OF_CAPACITY = _MAY_BE_OF_ONE_OVERRIDE | {FailureClass.UNSUPPORTED}


def hold_back_answered(
    state: LedgerState, call: Call, answer: CallAnswered, at_least: Seconds = 0.0
) -> None:
    """Hold back what the failures of one answer reach.

    An error of one override holds back its offering alone, and for the call's SKU alone: another
    SKU has another image. The launch option is at fault only where every override says so, and
    never where machines were launched.
    """
    wrong = {f.offering for f in answer.failures if f.failure in _NOT_FOR_WANT_OF_CAPACITY}
    every = not answer.launched and wrong.issuperset(call.offerings)
    for failure in answer.failures:
        named = failure.offering if failure.offering in call.offerings else None
        of_one = named is not None and failure.reach is None
        if failure.failure is FailureClass.CONFIGURATION and answer.launched:
            of_one = named is not None
            if not of_one:
                continue
        if of_one and not every and failure.failure in _MAY_BE_OF_ONE_OVERRIDE:
            key, reason = sku_offering_key(call.sku, str(named)), _reason(failure)
            strike(state, key, failure.failure, answer.at, reason, at_least)
        else:
            hold_back(state, call, failure, answer.at, at_least)
    if every and all(f.failure is FailureClass.UNSUPPORTED for f in answer.failures):
        key, reason = rung_key(call.sku, call.rung), _reason(answer.failures[0])
        strike(state, key, FailureClass.CONFIGURATION, answer.at, reason, at_least)


def hold_back(
    state: LedgerState, call: Call, failure: LaunchFailure, at: Instant, at_least: Seconds = 0.0
) -> None:
    """Hold back what a failure of this call reaches, and nothing beside it.

    A failure may name an offering that has left the catalogue since the call: it says nothing of the others.
    """
    reason = _reason(failure)
    known = failure.offering in call.offerings or failure.offering in state.offerings
    keys = (failure.offering,) if failure.offering is not None and known else call.offerings
    for key in sorted(_reached(state, call, failure, keys)):
        strike(state, key, failure.failure, at, reason, at_least)


def _reason(failure: LaunchFailure) -> str:
    return f"{failure.code}: {failure.message}"[:300]


def _reached(
    state: LedgerState, call: Call, failure: LaunchFailure, keys: tuple[str, ...]
) -> set[str]:
    offerings = [state.offerings[key] for key in keys if key in state.offerings]
    match failure.reach:
        case Reach.ZONE:
            return {zone_key(call.provider, offering.zone) for offering in offerings}
        case Reach.CAPACITY_TYPE:
            return {capacity_type_key(call.provider, call.capacity_type)}
        case Reach.PROVIDER:
            return {capacity_type_key(call.provider, kind) for kind in CapacityType}
    match failure.failure:
        case FailureClass.CAPACITY | FailureClass.UNSUPPORTED:
            return {offering_key(key) for key in keys}
        case FailureClass.QUOTA:
            return {quota_key(offering.quota_key) for offering in offerings}
        case FailureClass.THROTTLED:
            return {throttle_key(call.provider)}
    return {rung_key(call.sku, call.rung)}


def note_failed_boot(state: LedgerState, machine: Machine, at: Instant, reason: str) -> None:
    """A machine died before it could serve: from the third in a row on, its rung is held back.

    Its SKU is not, for another rung may work: it is on trial, and launches a probe at a time.
    """
    key = _rung_of(state, machine)
    if key is None:
        return
    _count(state, key, at, reason)
    boots = boots_key(machine.sku)
    strikes = _row(state.cooldowns.get(boots), FailureClass.UNKNOWN) + 1
    state.cool(Cooldown(boots, at, strikes, reason[:300]))
    if strikes == IN_A_ROW:
        state.note(machine, at, "on_trial", reason)


def note_good_boot(state: LedgerState, machine: Machine, at: Instant) -> None:
    """A machine came up well: its rung and SKU work, its zone and its capacity type do by now."""
    key = _rung_of(state, machine)
    if key is not None:
        lift(state, key, at)
        _end_trial(state, boots_key(machine.sku), machine, at)
    _lift_by(state, zone_key(machine.provider, machine.zone), machine.created_at, at)
    if machine.capacity_type:
        kind = CapacityType(machine.capacity_type)
        _lift_by(state, capacity_type_key(machine.provider, kind), machine.created_at, at)


def note_early_exit(state: LedgerState, machine: Machine, at: Instant, said: str) -> None:
    """A runner left at once without a job: from the third in a row on, its SKU is held back."""
    reason = f"their runners left at once without a job, the last one of {machine.id}: {said}"
    if _count(state, exits_key(machine.sku), at, reason) == IN_A_ROW:
        state.note(machine, at, "on_trial", reason)


def note_job_given(state: LedgerState, machine: Machine, at: Instant) -> None:
    """GitHub gave a runner of this machine a job: its SKU's runners are fit to work.

    Of a refused image, only a job on that image says so.
    """
    known = state.cooldowns.get(exits_key(machine.sku))
    if known is not None and known.image and known.image != machine.image:
        return
    _end_trial(state, exits_key(machine.sku), machine, at)


def _count(state: LedgerState, key: str, at: Instant, reason: str) -> int:
    """One more in a row, unless it was under way before the hold: the new length, or 0."""
    known = state.cooldowns.get(key)
    if known is not None and known.until > at:
        return 0
    strikes = _row(known, FailureClass.UNKNOWN) + 1
    hold = 0.0
    if strikes >= IN_A_ROW:
        hold = GROWTH[FailureClass.UNKNOWN].hold(strikes - IN_A_ROW)
    state.cool(Cooldown(key, at + hold, strikes, reason[:300]))
    return strikes


def _row(known: Cooldown | None, failure: FailureClass) -> int:
    """How many failures of that class were the last in a row."""
    return known.strikes if known is not None and known.failure is failure else 0


def _end_trial(state: LedgerState, key: str, machine: Machine, at: Instant) -> None:
    if on_trial(state.cooldowns, key) is not None:
        state.note(machine, at, "trial_over")
    lift(state, key, at)


def _rung_of(state: LedgerState, machine: Machine) -> str | None:
    call = state.calls.get(machine.call)
    return rung_key(call.sku, call.rung) if call is not None else None


def lift(state: LedgerState, key: str, at: Instant) -> None:
    """It works again: the next failure counts as a first one."""
    known = state.cooldowns.get(key)
    if known is not None and known.strikes:
        state.cool(Cooldown(key, at, 0, ""))


def lift_offering(
    state: LedgerState, sku: SkuName, offering: Offering, asked_at: Instant, at: Instant
) -> None:
    """A machine of the SKU that was asked for then came from this offering: it and its quota work."""
    _lift_by(state, sku_offering_key(sku, offering.key), asked_at, at)
    _lift_by(state, offering_key(offering.key), asked_at, at)
    _lift_by(state, quota_key(offering.quota_key), asked_at, at)
    _lift_by(state, throttle_key(offering.provider), asked_at, at)


def _lift_by(state: LedgerState, key: str, asked_at: Instant, at: Instant) -> None:
    """Lift what a launch has tried: one from before a hold, or during it, says nothing about it."""
    known = state.cooldowns.get(key)
    if known is not None and asked_at >= known.until:
        lift(state, key, at)
