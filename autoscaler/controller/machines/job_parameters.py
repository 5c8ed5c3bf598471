"""The parameters of a machine's job hooks, which it gets with its assignment (docs/bootstrap.md)."""

from typing import Any

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.machines.machine import Machine


def job_parameters(
    state: LedgerState, machine: Machine, demand: DemandClass, now: Instant
) -> dict[str, Any]:
    """Return the access of the machine's SKU, and what the author of the job may want to know. O(1).

    GitHub may give the runner another job of this class than the one that waits longest.
    """
    sku, placement = state.catalogue.skus.get(machine.sku), machine.placement
    found: dict[str, Any] = {
        "machine": machine.id,
        "sku": machine.sku,
        "instance": placement.provider_id or "",
        "offering": " ".join(
            (machine.provider, placement.instance_type, placement.zone, placement.capacity_type)
        ).strip(),
        "image": placement.image,
        "ready_s": _seconds(machine.created_at, machine.progress.ready_at),
        "idle_s": _seconds(machine.progress.ready_at, now),
        **_wait(state, machine, demand, now),
    }
    if sku is not None:
        access = sku.access
        found["access"] = {
            "repositories": list(access.repositories),
            "forks": access.forks,
            "public_repositories": access.public_repositories,
            "branches": list(access.branches),
            "contact": access.contact,
        }
    return found


def _wait(
    state: LedgerState, machine: Machine, demand: DemandClass, now: Instant
) -> dict[str, Any]:
    """Return how long the first job of the class has waited, and whether the machine was launched since."""
    queue = state.queues.get(demand)
    if not queue:
        return {}
    (queued_at, _), _ = queue.peekitem(0)
    return {"waited_s": _seconds(queued_at, now), "launched_for_it": machine.created_at > queued_at}


def _seconds(since: Instant | None, until: Instant | None) -> int | None:
    return None if since is None or until is None else max(0, round(until - since))
