"""Counts failures against the host on which they happened: the next machines of the SKU avoid it.

A host is the node of a pod. A failure on one host says nothing about others, so that host alone is avoided. If
another host fails in the same way, and no machine became ready meanwhile, the cause is probably the image or
the configuration: the launch option is put on hold, too.

EC2 does not show the host of an instance. It may give the next launch of the type in the zone the host of the
machine that was just terminated. A launch of another type, or in another zone, has another host.
"""

from collections.abc import Iterator

from autoscaler.ledger.failures.failure_counts import count_failure, end_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import Offering, Sku
from autoscaler.model.cooldowns import (
    Cooldown,
    active_cooldown,
    avoided_hosts,
    host_key,
    offering_key,
    sku_offering_key,
    suspect_host_key,
)
from autoscaler.model.identifiers import Instant, ProviderName, SkuName
from autoscaler.model.machines.failures import HARDWARE_CHECKS, FailureClass
from autoscaler.model.machines.machine import Machine, MachineState

AVOIDED = Backoff(600.0, 3600.0)
"""How long a host is avoided: as long as the type in the zone of an EC2 machine whose hardware failed."""

MOST_HOSTS = 20
"""Hosts that one launch request avoids, those that are avoided longest. Each one makes the request larger."""


def is_of_host(
    state: LedgerState, machine: Machine, failure: FailureClass, at: Instant, reason: str
) -> bool:
    """Count a failure against the machine's host. Return True if it says nothing about the launch option.

    It does if another host failed in the same way and no machine became ready since, or if the machine got an
    avoided host and no other host is known to work. If others work, they have no room: a lack of capacity.
    """
    host = machine.placement.host
    if not host:
        return False
    suspect = _suspect(state, machine.sku, machine.provider)
    known = state.cooldowns.get(host_key(machine.sku, machine.provider, host))
    failures = known.failures if known is not None else 0
    avoided_until = known.until if known is not None and failures else 0.0
    if failures and machine.created_at < avoided_until - AVOIDED.delay(failures - 1):
        return True  # The machine was launched before the failure that was counted last.
    elsewhere = others_work(state, machine.sku, machine.provider, at)
    _avoid(state, machine, failures, failure, at, reason)
    if machine.created_at >= avoided_until:
        return suspect is None or suspect.reason == host or suspect.failure is not failure
    if elsewhere:
        _hold_full(state, machine, at)
    return elsewhere


def note_ready(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Note that a machine became ready: its host is not avoided any more, and some host works."""
    if machine.placement.host:
        end_hold(state, host_key(machine.sku, machine.provider, machine.placement.host), at)
    end_hold(state, suspect_host_key(machine.sku, machine.provider), at)


def hosts_to_avoid(
    state: LedgerState, sku: SkuName, provider: ProviderName, now: Instant
) -> tuple[str, ...]:
    """Return the hosts that a launch request of a SKU avoids now, sorted. O(cooldowns)."""
    until = _avoided(state, sku, provider, now)
    return tuple(sorted(sorted(until, key=lambda host: (-until[host], host))[:MOST_HOSTS]))


def others_work(state: LedgerState, sku: SkuName, provider: ProviderName, now: Instant) -> bool:
    """Return True if hosts work that are not avoided: a machine is ready or at work there.

    True, too, if a machine became ready since the last host failed. O(machines of the SKU).
    """
    if _suspect(state, sku, provider) is None:
        return True
    hosts = {
        machine.placement.host
        for at_work in (MachineState.READY, MachineState.ASSIGNED)
        for machine in state.by_state.get((sku, at_work), {}).values()
        if machine.provider == provider and machine.placement.host
    }
    return not hosts.issubset(_avoided(state, sku, provider, now))


def _avoided(
    state: LedgerState, sku: SkuName, provider: ProviderName, now: Instant
) -> dict[str, Instant]:
    """Return the hosts that the SKU avoids now, each with the moment when this ends."""
    found = avoided_hosts(state.cooldowns, now)
    return {one.host: one.row.until for one in found if (one.sku, one.provider) == (sku, provider)}


def _suspect(state: LedgerState, sku: SkuName, provider: ProviderName) -> Cooldown | None:
    """Return the last failure of a host (`reason`) since a machine became ready, or None."""
    known = state.cooldowns.get(suspect_host_key(sku, provider))
    return known if known is not None and known.failures else None


def _avoid(
    state: LedgerState,
    machine: Machine,
    before: int,
    failure: FailureClass,
    at: Instant,
    reason: str,
) -> None:
    """Avoid the machine's host after one more failure than `before`."""
    host, until = machine.placement.host, at + AVOIDED.delay(before)
    key = host_key(machine.sku, machine.provider, host)
    state.set_cooldown(Cooldown(key, until, before + 1, reason[:300], failure))
    last = suspect_host_key(machine.sku, machine.provider)
    state.set_cooldown(Cooldown(last, at, 1, host, failure))


def _hold_full(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Put the offerings of the machine's launch request on hold: only an avoided host had room for it."""
    request = state.launch_requests.get(machine.launch_request)
    reason = f"only the avoided host {machine.placement.host} had room"
    for offering in request.offerings if request is not None else ():
        count_failure(state, offering_key(offering), FailureClass.CAPACITY, at, reason)


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
