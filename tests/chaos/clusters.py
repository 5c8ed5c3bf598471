"""The product's Kubernetes provider on the API servers of the simulated clusters."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    OutcomeUnknownError,
    ProviderError,
)
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api.errors import UNREACHABLE, error_of
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.listing.machines import offering
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from autoscaler.simulator.world.cluster.api_server import (
    Answer,
    BrokenConnectionError,
    RefusedConnectionError,
)
from autoscaler.simulator.world.cluster.pod_lists import PodLists
from autoscaler.simulator.world.cluster.pods import SimulatedCluster
from autoscaler.simulator.world.processes import count_call


class Connection:
    """The API server as one process reaches it. Implements `ApiServer` of the provider."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the answer to a request."""
        answer = await self._answer(method, path, query, body)
        self._cluster.shown(answer.body.get("items") or [answer.body])
        return answer.body

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Return the text of the answer to a GET."""
        return (await self._answer("GET", path, query, None)).text

    @asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], limit: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch."""
        await count_call()
        with _network_errors():
            yield self._seen(self._cluster.api.watch(path, query, limit))

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _seen(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            await count_call()
            self._cluster.shown([json.loads(line)["object"]])
            yield line

    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
    ) -> Answer:
        await count_call()
        with _network_errors():
            answer = await self._cluster.api.answer(method, path, query or {}, body or {})
        await count_call()
        if answer.status >= 300:
            raise error_of(answer.status, answer.body, answer.retry_after)
        return answer


@contextmanager
def _network_errors() -> Iterator[None]:
    """Turn errors of the connection into those of the port, as `client` does."""
    try:
        yield
    except RefusedConnectionError as error:
        raise ProviderError(FailureClass.UNKNOWN, UNREACHABLE, "refused") from error
    except BrokenConnectionError as error:
        raise OutcomeUnknownError("the connection broke") from error


class WorldProvider(KubernetesProvider):
    """The provider, unmodified. The world sees each launch request, and when a list is complete."""

    def __init__(
        self,
        settings: KubernetesSettings,
        clock: Clock,
        cluster: SimulatedCluster,
    ) -> None:
        super().__init__(settings, Telemetry(), clock, Connection(cluster))
        self._cluster = cluster
        timeout = settings.pending_timeout if settings.provisioner else 0.0
        self._lists = PodLists(cluster, clock, timeout)

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """Yield pages of pods, and have the world check what follows from them."""
        listing = self._lists.begin()
        async for page in super().machines():
            yield page
        self._lists.complete(listing)

    async def launch(self, request: str) -> LaunchAnswer:
        """Have the world check the request, and send it."""
        pod, names = (found := json.loads(request))["pod"], found["names"]
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        sku = SkuName(metadata["annotations"][ownership.SKU])
        order = {
            "launch_request": metadata["labels"][ownership.LAUNCH_REQUEST],
            "sku": sku,
            "offerings": [offering(self._settings, one).key for one in self._options(sku)],
            "count": len(names),
            "token": found["token"],
        }
        new = sum((namespace, name) not in self._cluster.registry.pods for name in names)
        self._cluster.invariants.launching(request, order, new)
        return await super().launch(request)

    def _options(self, sku: SkuName) -> list[Any]:
        return [one for (name, _), one in self._settings.options.items() if name == sku]
