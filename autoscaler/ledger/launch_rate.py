"""What of a provider's launch rate is left: token buckets that every call draws on.

It never decides what to launch with it.
"""

from autoscaler.ledger.state import LedgerState
from autoscaler.model.catalogue import LaunchTokens
from autoscaler.model.identifiers import Instant, ProviderName


def launch_tokens(state: LedgerState, provider: ProviderName, at: Instant) -> LaunchTokens:
    """What a provider with a rate takes now: token buckets, full at their bursts."""
    rate = state.catalogue.launch_rates[provider]
    tokens, since = state.launch_levels.get(provider, (rate.full, at))
    return rate.refilled(tokens, at - since)


def spend(
    state: LedgerState, provider: ProviderName, at: Instant, launch_requests: int, machines: int
) -> None:
    """Take so many calls and machines out; negative ones were never sent, and are given back."""
    if provider in state.catalogue.launch_rates:
        tokens = launch_tokens(state, provider, at).less(launch_requests, machines)
        state.launch_levels[provider] = (tokens, at)
