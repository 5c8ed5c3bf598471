"""Counts the fleet for the metrics: jobs, machines, costs, circuit breakers, and offerings on hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.telemetry import FleetCounts, Telemetry
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.cooldowns import (
    avoided_hosts,
    boots_key,
    exits_key,
    open_circuit,
    open_options,
)
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import Waiting
from autoscaler.views.offerings import offerings_on_hold

HOLDS_EVERY: Seconds = 15.0
"""How often offerings on hold are counted, about as often as Prometheus scrapes."""


def fleet_counts(
    state: LedgerState,
    now: Instant,
    reasons: Mapping[DemandClass, Sequence[Waiting]] = MappingProxyType({}),
) -> FleetCounts:
    """Return the fleet's gauges. `reasons` are those of the last plan.

    O(classes + cooldowns + SKUs x states).
    """
    by_reason: Counter[tuple[SkuName, WaitCode]] = Counter()
    for demand, runs in reasons.items():
        for run in runs:
            by_reason[demand.skus[0], run.code] += run.count
    return FleetCounts(
        jobs_waiting={sku: state.waiting_for(sku) for sku in state.catalogue.skus},
        waiting_reasons=by_reason,
        oldest_waiting={
            sku: max(0.0, now - queued_at)
            for sku in state.catalogue.skus
            if (queued_at := state.oldest_queued(sku)) is not None
        },
        jobs_in_progress={sku: state.in_progress[sku] for sku in state.catalogue.skus},
        jobs_without_sku={code: len(jobs) for code, jobs in state.unmatched.items()},
        jobs_awaiting_approval=state.awaiting_approval,
        runners=state.registrations,
        machines={key: len(ordered) for key, ordered in state.by_state.items()},
        machines_foreign=sum(len(machines) for machines in state.foreign.values()),
        machines_unverified=state.unverified,
        machines_not_terminating=state.not_terminating,
        dollars_per_hour=max(
            0.0, state.dollars_used - state.spot_costs.below_limits(state.catalogue)
        ),
        circuits_open=tuple(
            sku
            for sku in state.catalogue.skus
            if any(open_circuit(state.cooldowns, key) for key in (boots_key(sku), exits_key(sku)))
        ),
        option_circuits_open=tuple(
            (sku.name, option.provider)
            for sku in state.catalogue.skus.values()
            for option, _ in open_options(state.cooldowns, sku)
        ),
        nodes_avoided=tuple(
            (one.sku, one.provider, one.host) for one in avoided_hosts(state.cooldowns, now)
        ),
    )


async def report_offerings_on_hold(journal: Journal, telemetry: Telemetry, clock: Clock) -> None:
    """Report how many offerings are on hold, until cancelled. A hold ends by time, without an event."""
    while True:
        telemetry.offerings_on_hold(offerings_on_hold(journal.fleet()))
        await clock.sleep(HOLDS_EVERY)
