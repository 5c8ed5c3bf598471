"""The provider's view of an API server: everything above it works without a network.

`KubernetesApi` sends real requests. The simulated worlds have an API server in virtual time.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class ApiServer(Protocol):
    """One API server. Every method but `close` raises ProviderError and OutcomeUnknownError."""

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the answer to one request, which is sent once."""

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Return the answer to one GET as text."""

    def lines(
        self, path: str, query: Mapping[str, str], limit: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a GET whose answer is read line by line, such as a watch, for `limit` seconds at most.

        Raises errors also while lines are read.
        """

    async def close(self) -> None:
        """Release the connections. Idempotent."""
