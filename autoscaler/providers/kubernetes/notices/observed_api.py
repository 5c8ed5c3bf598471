"""An API server each of whose answers is looked at for the fleet's pods, whatever it was asked for."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.identity.ownership import metadata_of
from autoscaler.providers.kubernetes.settings import KubernetesSettings


class ObservedApi:
    """Implements `ApiServer`. Calls `see` with each pod of the fleet in an answer, such as a page of a list."""

    def __init__(
        self,
        api: ApiServer,
        settings: KubernetesSettings,
        see: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._see = see

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the answer to one request (see `ApiServer`)."""
        answer = await self._api.request(method, path, query, body)
        shown = answer if isinstance(answer, Mapping) else {}
        for found in shown.get("items") or (shown,):
            if self._is_pod_of_fleet(found):
                self._see(found)
        return answer

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Return the answer to one GET as text (see `ApiServer`)."""
        return await self._api.text(path, query)

    def lines(
        self, path: str, query: Mapping[str, str], limit: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a GET whose answer is read line by line (see `ApiServer`)."""
        return self._api.lines(path, query, limit)

    async def close(self) -> None:
        """Release the connections. Idempotent."""
        await self._api.close()

    def _is_pod_of_fleet(self, found: Mapping[str, Any]) -> bool:
        """Return True for a pod with its status. The answer to its creation has the metadata alone."""
        if metadata_of(found, "labels").get(ownership.FLEET) != self._settings.fleet:
            return False
        return found["metadata"].get("namespace") == self._settings.namespace and "status" in found
