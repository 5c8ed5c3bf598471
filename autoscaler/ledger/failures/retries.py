"""Ends the holds of what an operator has corrected, so that the controller tries again at once."""

from collections.abc import Iterator

from autoscaler.ledger.failures.circuits import remember_refused
from autoscaler.ledger.failures.failure_counts import end_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Sku
from autoscaler.model.changes import HistoryRow
from autoscaler.model.cooldowns import (
    Cooldown,
    avoided_hosts,
    boots_key,
    exits_key,
    launch_keys,
    launch_option_key,
    open_circuit,
    registration_key,
)
from autoscaler.model.events import RetriedByOperator
from autoscaler.model.identifiers import Instant, ProviderName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import HoldTarget, TargetKind


def on_retried_by_operator(state: LedgerState, event: RetriedByOperator) -> None:
    """End the holds of a target, close its circuit breakers and retry its jobs on hold."""
    for row in holds_to_end(state, event.target, event.at):
        end_hold(state, row.key, event.at)
    for sku in _skus(state, event.target):
        remember_refused(state, sku.name, "", event.at)
    skus = {sku.name for sku in _skus(state, event.target)}
    for demand, jobs in tuple(state.on_hold.items()):
        if not skus.isdisjoint(demand.skus):
            for job in tuple(jobs.values()):
                with state.changing(job):
                    job.probe_at = event.at
    for passed_over in state.passed_over.values():
        if any(not skus.isdisjoint(demand.skus) for demand in passed_over.runners.values()):
            passed_over.probe_at = event.at
    target = event.target
    state.note_row(
        HistoryRow(event.at, target.kind.value, target.name, "retried", f"by {event.by}")
    )


def holds_to_end(state: LedgerState, target: HoldTarget, at: Instant) -> list[Cooldown]:
    """Return the holds and open circuit breakers of a SKU, a provider or the fleet.

    Throttling is none of them: there the provider says when to try again. O(cooldowns + offerings).
    """
    keys = set(_keys(state, target))
    of_target = {(sku.name, provider) for sku, _, provider in _options(state, target)}
    keys |= {
        one.row.key
        for one in avoided_hosts(state.cooldowns, at)
        if (one.sku, one.provider) in of_target
    }
    return [
        row
        for key, row in state.cooldowns.items()
        if key in keys and row.failures and row.failure is not FailureClass.THROTTLED
        if row.until > at or open_circuit(state.cooldowns, key) is not None
    ]


def _keys(state: LedgerState, target: HoldTarget) -> Iterator[str]:
    if target.kind is not TargetKind.PROVIDER:
        yield from (registration_key(scope.key) for scope in state.catalogue.scopes)
    for sku, index, _ in _options(state, target):
        yield from (exits_key(sku.name), boots_key(sku.name), launch_option_key(sku.name, index))
        for offering in sku.launch_options[index].offerings:
            yield from launch_keys(sku.name, index, offering)


def _skus(state: LedgerState, target: HoldTarget) -> list[Sku]:
    return list({sku.name: sku for sku, _, _ in _options(state, target)}.values())


def _options(state: LedgerState, target: HoldTarget) -> Iterator[tuple[Sku, int, ProviderName]]:
    for sku in state.catalogue.skus.values():
        for index, option in enumerate(sku.launch_options):
            names = {TargetKind.SKU: sku.name, TargetKind.PROVIDER: option.provider}
            if target.kind is TargetKind.FLEET or names.get(target.kind) == target.name:
                yield sku, index, option.provider
