"""Counts failures in a row, by key: how long what failed stays on hold."""

from collections.abc import Mapping

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.machines.failures import FailureClass

BACKOFFS: Mapping[FailureClass, Backoff] = {
    # Karpenter caches an offering without capacity for 3 minutes.
    FailureClass.CAPACITY: Backoff(180.0, 1800.0),
    # A refused request costs nothing, and only the next one shows that the cause is corrected.
    FailureClass.QUOTA: Backoff(60.0, 60.0),
    FailureClass.THROTTLED: Backoff(5.0, 60.0),
    FailureClass.CONFIGURATION: Backoff(60.0, 60.0),
    # AWS brings an instance type to another zone within months, not within minutes.
    FailureClass.UNSUPPORTED: Backoff(6 * 3600.0, 24 * 3600.0),
    # Most are outages of the provider or its network, whose end shows only in the next request.
    FailureClass.UNKNOWN: Backoff(30.0, 60.0),
    # Until EC2 has probably given the faulty host to another customer, or repairs it.
    FailureClass.HEALTH_CHECK: Backoff(600.0, 3600.0),
}

OF_MACHINES: Mapping[FailureClass, Backoff] = {
    **BACKOFFS,
    FailureClass.QUOTA: Backoff(60.0, 900.0),
    FailureClass.CONFIGURATION: Backoff(60.0, 900.0),
}
"""Of failures of machines that exist already, each of which costs money."""


def count_failure(
    state: LedgerState,
    key: str,
    failure: FailureClass,
    at: Instant,
    reason: str,
    at_least: Seconds = 0.0,
    image: str = "",
    error: str = "",
) -> None:
    """Put `key` on hold for at least `at_least` seconds.

    `image` is the image of the machine that failed; empty if a request was refused. `error` is the code of the
    provider's error, if there is one.

    Failures of requests that were in flight at the same time count once. Failures are counted per
    class, so that throttling does not cause a long hold for one configuration error. Of two holds of
    different classes, the later end counts.
    """
    known = state.cooldowns.get(key)
    row = _row(known, failure)
    in_force = known.until if known is not None and known.until > at else at
    if row and in_force > at:
        failures, hold = row, 0.0
    else:
        backoffs = OF_MACHINES if image else BACKOFFS
        failures, hold = row + 1, backoffs[failure].delay(row)
    until = at + max(hold, at_least)
    if until > in_force:
        state.set_cooldown(Cooldown(key, until, failures, reason, failure, image, error))


def end_hold(state: LedgerState, key: str, at: Instant) -> None:
    """End the hold of a key. The next failure counts as the first one."""
    known = state.cooldowns.get(key)
    if known is not None and known.failures:
        state.set_cooldown(Cooldown(key, at, 0, ""))


def _row(known: Cooldown | None, failure: FailureClass) -> int:
    """Return the number of failures in a row, if they are of this class, else 0."""
    return known.failures if known is not None and known.failure is failure else 0
