"""Reads the nodes and the pods of a whole cluster, and keeps only what counts."""

from typing import Any, NamedTuple

from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.capacity.accelerators import Usage, free_units, known_of
from autoscaler.providers.kubernetes.listing.pods import pages
from autoscaler.providers.kubernetes.settings import KubernetesSettings


class Capacity(NamedTuple):
    """A cluster's nodes (`known_of`), and its free accelerators by `Offering.quota_key`."""

    nodes: list[dict[str, Any]]
    free: dict[str, int]


async def read_capacity(api: ApiServer, settings: KubernetesSettings) -> Capacity:
    """Return the capacity of the cluster. Needs the rights of deploy/kubernetes/rbac/capacity.yaml.

    Keeps one page of pods at a time: 30,000 pods would take more memory than the controller may have. Raises
    ProviderError, OutcomeUnknownError.
    """
    nodes = [known_of(one) async for page in pages(api, paths.NODES) for one in page.pods]
    used = Usage(settings)
    async for page in pages(api, paths.ALL_PODS):
        used.add(page.pods)
    return Capacity(nodes, free_units(settings, nodes, used))
