"""Connects the readers of the providers' prices with the code that uses the prices."""

from collections.abc import Callable, Mapping

from autoscaler.controller.guarded_providers import GuardedPrices
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.readings import ReadingCache
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.pricing import Pricing
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.ec2.provider import Ec2Provider


def make_pricing(
    ledger: Ledger,
    ec2: Mapping[ProviderName, Ec2Provider],
    cache: ReadingCache,
    sell: Callable[[], None],
    telemetry: Telemetry,
    clock: Clock,
) -> Pricing:
    """Return the reader of all EC2 providers' prices.

    `sell` updates the offerings' on-demand prices. The ledger gets the spot prices.
    """

    def changed(kind: CapacityType) -> None:
        if kind is CapacityType.SPOT:
            known = {name: provider.prices.known_prices(kind) for name, provider in ec2.items()}
            ledger.use_spot_prices(known)
        else:
            sell()

    readers = {name: GuardedPrices(provider.prices) for name, provider in ec2.items()}
    return Pricing(readers, cache, changed, telemetry, clock)
