"""Counts the machines of other installations against the limits. They are not changed.

After a start, the stored numbers of a provider's foreign machines count until its first complete listing
shows the machines themselves. Until then, the machines of an incomplete listing count twice.
"""

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.events import ListedMachine, MachinesListed
from autoscaler.model.identifiers import ProviderMachineId, ProviderName, SkuName
from autoscaler.model.prices_and_quotas import ForeignUsage


def count(state: LedgerState, event: MachinesListed, listed: ListedMachine) -> None:
    """Count a listed machine of another installation, once."""
    known = state.foreign.setdefault(event.provider, {})
    if listed.terminated:
        stop_counting(state, event, listed.provider_id)
    elif listed.provider_id not in known:
        known[listed.provider_id] = listed
        state.count_use(listed.sku, listed.dollars_per_hour, listed.quota_usage, 1)


def stop_counting(
    state: LedgerState, event: MachinesListed, provider_id: ProviderMachineId
) -> None:
    """Stop counting a machine that is not another installation's, or is gone."""
    listed = state.foreign.get(event.provider, {}).pop(provider_id, None)
    if listed is not None:
        state.count_use(listed.sku, listed.dollars_per_hour, listed.quota_usage, -1)


def stop_counting_absent(
    state: LedgerState, event: MachinesListed, last: set[ProviderMachineId]
) -> None:
    """Apply a complete listing: stop counting the machines that it does not show, and the stored numbers."""
    _count_stored(state, event.provider, -1)
    state.foreign_before.pop(event.provider, None)
    for provider_id in tuple(state.foreign.get(event.provider, {})):
        if provider_id not in event.shown and provider_id not in last:
            stop_counting(state, event, provider_id)


def restore(state: LedgerState, provider: ProviderName, usage: ForeignUsage) -> None:
    """Count the usage that the store has about a provider, until its first complete listing.

    Without quotas: nothing is launched at this provider before that listing.
    """
    state.foreign_before[provider] = usage
    _count_stored(state, provider, 1)


def usage_of(state: LedgerState, provider: ProviderName) -> ForeignUsage:
    """Return what the listed machines of other installations use at a provider. O(their number)."""
    usage: dict[SkuName, tuple[int, float]] = {}
    for listed in state.foreign.get(provider, {}).values():
        machines, dollars = usage.get(listed.sku, (0, 0.0))
        usage[listed.sku] = machines + 1, dollars + listed.dollars_per_hour
    return usage


def _count_stored(state: LedgerState, provider: ProviderName, sign: int) -> None:
    for sku, (machines, dollars) in state.foreign_before.get(provider, {}).items():
        if machines:
            state.count_use(sku, dollars / machines, (), sign * machines)
