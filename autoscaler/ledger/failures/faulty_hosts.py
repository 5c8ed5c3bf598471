"""Launches elsewhere for a while after the hardware of a machine has failed its health checks.

EC2 does not show the host of an instance. It may give the next launch of the type in the zone the host of the
machine that was just terminated. A launch of another type, or in another zone, has another host.
"""

from collections.abc import Iterator

from autoscaler.ledger.failures.failure_counts import count_failure
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Offering, Sku
from autoscaler.model.cooldowns import active_cooldown, offering_key, sku_offering_key
from autoscaler.model.identifiers import Instant
from autoscaler.model.machines.failures import HARDWARE_CHECKS, FailureClass
from autoscaler.model.machines.machine import Machine


def avoid_host(state: LedgerState, machine: Machine, at: Instant, detail: str) -> None:
    """Put the machine's type in its zone on hold for its SKU, if a check of its hardware failed.

    `detail` has the failed checks. If no other offering of the SKU is available, nothing is put on hold: one
    faulty host must not stop a SKU. A pod names its node: `host_failures` counts against that one.
    """
    sku, place = state.catalogue.skus.get(machine.sku), machine.placement
    failed = {part.partition(":")[0] for part in detail.split("; ")}
    if sku is None or not place.zone or place.host or failed.isdisjoint(HARDWARE_CHECKS):
        return
    here: list[Offering] = []
    elsewhere: list[Offering] = []
    for offering in _offerings(sku):
        where = (offering.provider, offering.instance_type, offering.zone)
        shares = where == (machine.provider, place.instance_type, place.zone)
        (here if shares else elsewhere).append(offering)
    if not any(_is_available(state, sku, offering, at) for offering in elsewhere):
        return
    for offering in here:
        key, reason = (
            sku_offering_key(sku.name, offering.key),
            f"hardware of {machine.id}: {detail}",
        )
        count_failure(state, key, FailureClass.HEALTH_CHECK, at, reason[:300])


def _offerings(sku: Sku) -> Iterator[Offering]:
    for option in sku.launch_options:
        yield from option.offerings


def _is_available(state: LedgerState, sku: Sku, offering: Offering, at: Instant) -> bool:
    keys = (offering_key(offering.key), sku_offering_key(sku.name, offering.key))
    return all(active_cooldown(state.cooldowns, key, at) is None for key in keys)
