"""Token buckets of each provider's launch rate."""

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import LaunchTokens
from autoscaler.model.identifiers import Instant, ProviderName


def launch_tokens(state: LedgerState, provider: ProviderName, at: Instant) -> LaunchTokens:
    """Return how many requests and machines a provider with a rate accepts now."""
    rate = state.catalogue.launch_rates[provider]
    tokens, since = state.launch_levels.get(provider, (rate.full, at))
    return rate.refilled(tokens, at - since)


def spend(
    state: LedgerState, provider: ProviderName, at: Instant, launch_requests: int, machines: int
) -> None:
    """Use tokens. Negative numbers give tokens of unsent requests back."""
    if provider in state.catalogue.launch_rates:
        tokens = launch_tokens(state, provider, at).less(launch_requests, machines)
        state.launch_levels[provider] = (tokens, at)
