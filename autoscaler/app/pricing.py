"""Connects the readers of the providers' prices with the code that uses the prices."""

from collections.abc import Callable, Mapping

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.ports.readings import ReadingCache
from autoscaler.controller.ports.telemetry import PriceTelemetry
from autoscaler.controller.pricing import Pricing
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import ProviderName


def make_pricing(
    ledger: Ledger,
    providers: Mapping[ProviderName, Provider],
    cache: ReadingCache,
    sell: Callable[[], None],
    telemetry: PriceTelemetry,
    clock: Clock,
) -> Pricing:
    """Return the reader of the prices of all providers that list any.

    `sell` updates the offerings' on-demand prices. The ledger gets the spot prices.
    """

    prices = {name: provider.prices for name, provider in providers.items()}
    readers = {name: reader for name, reader in prices.items() if reader is not None}

    def changed(kind: CapacityType) -> None:
        if kind is CapacityType.SPOT:
            known = {name: reader.known_prices(kind) for name, reader in readers.items()}
            ledger.use_spot_prices(known)
        else:
            sell()

    return Pricing(readers, cache, changed, telemetry, clock)
