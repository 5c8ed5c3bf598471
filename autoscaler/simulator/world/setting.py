"""The settings of a world: its providers, quotas and boot times, and how a controller reaches the providers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Pace
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.simulator.world.cluster.pods import ClusterPlan, SimulatedCluster
from autoscaler.simulator.world.ec2.provider import SimulatedProvider


def connect_directly(provider: SimulatedProvider) -> Provider:
    """Return the provider itself."""
    return provider


def no_provider(cluster: SimulatedCluster, clock: Clock) -> Provider:
    """Raise ValueError: a setting with clusters needs a `connect_cluster` of its own."""
    raise ValueError(f"no provider for {cluster.name} on {clock}")


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a world. `quota` is that of the account, by `Offering.quota_key`.

    `boot` is by SKU the time until a machine's attestation. `strangers` is how many machines of
    another installation each provider runs under this fleet's name. `connect` returns what the controller
    uses to reach a simulated provider: by default the provider itself. `clusters` are the providers that are
    clusters. `connect_cluster` returns a new provider over a cluster for each process.
    """

    catalogue: Catalogue
    quota: Mapping[str, int]
    boot: Mapping[str, Seconds]
    telemetry: Telemetry
    pace: Pace
    strangers: int = 1
    connect: Callable[[SimulatedProvider], Provider] = connect_directly
    clusters: Mapping[ProviderName, ClusterPlan] = field(default_factory=dict)
    connect_cluster: Callable[[SimulatedCluster, Clock], Provider] = no_provider
