"""Sends requests to the API server with the official client's connection, credentials and TLS settings.

Objects stay plain JSON: parsing 1,500 pods into the client's models takes seconds of CPU. Nothing here repeats
a request, except once with fresh credentials: after a 401, or if the API server's certificate is not trusted.
Such a request had no effect. A request that changes something is sent only while this process leads, and waits
no longer for its answer.
"""

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.replicas import Leads, leads_forever
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.credentials import (
    BEARER_TOKEN,
    credential_errors,
    new_client,
)
from autoscaler.providers.kubernetes.api.errors import (
    OTHER_NAME,
    UNREACHABLE,
    error_of,
    metric_label,
    refusal,
)
from autoscaler.providers.kubernetes.api.texts import MAX_TEXT
from autoscaler.providers.kubernetes.settings import KubernetesSettings

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from kubernetes.aio.client import ApiClient

JSON = "application/json"
ACCEPT = f"{JSON}, */*"
"""As kubectl sends it: the cluster's keys have a media type of their own."""
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Only the metadata of an object (Kubernetes documentation, "API Concepts": metadata-only fetches).

The answer to the creation of a pod repeats the pod. Without its spec and status, it has 3,200 bytes instead of
5,500.
"""
MERGE_PATCH = "application/merge-patch+json"
_REVIEWS = frozenset({paths.TOKEN_REVIEWS, paths.ACCESS_REVIEWS})
_AUTHENTICATION = [BEARER_TOKEN]
_NAME_MISMATCH = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (OpenSSL, X509_STORE_CTX_get_error(3))."""
_RETIRED = 2
"""Clients with earlier credentials that stay open for their requests in flight."""


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None

    @property
    def changes(self) -> bool:
        """Whether the request changes something. A review is only an answer."""
        return self.method not in ("GET", "HEAD") and self.path not in _REVIEWS


class KubernetesApi:
    """The API server of one provider. Connects with the first request."""

    def __init__(
        self,
        settings: KubernetesSettings,
        telemetry: Telemetry,
        clock: Clock,
        leads: Leads = leads_forever,
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self._leads = leads
        self._client: ApiClient | None = None
        self._retired: list[ApiClient] = []
        self._renewing = asyncio.Lock()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the answer to one request. Raises ProviderError, OutcomeUnknownError."""
        text = await self._text(_Request(method, path, query, body))
        try:
            return json.loads(text)
        except ValueError as error:
            raise OutcomeUnknownError(f"{method} {path}: the answer is not JSON") from error

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Return the answer to one GET as text. Raises ProviderError, OutcomeUnknownError."""
        return await self._text(_Request("GET", path, query))

    @asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], limit: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a GET whose answer is read line by line, such as a watch, for `limit` seconds at most.

        Raises ProviderError, OutcomeUnknownError, also while lines are read.
        """
        with self._metered("WatchPods"):
            async with self._answer(_Request("GET", path, query), limit) as answer:
                yield _lines(answer)

    async def close(self) -> None:
        """Release the connections. Idempotent."""
        clients = [*self._retired, self._client]
        self._client, self._retired = None, []
        for client in clients:
            if client is not None:
                await client.close()

    async def _text(self, request: _Request) -> str:
        with self._metered(paths.operation(request.method, request.path)):
            async with self._answer(request, self._settings.timeout) as answer:
                return (await answer.read()).decode(errors="replace")

    @contextmanager
    def _metered(self, operation: str) -> Iterator[None]:
        began = self._clock.now()
        outcome = "ok"
        try:
            yield
        except ProviderError as error:
            outcome = metric_label(error.code)
            raise
        except OutcomeUnknownError:
            outcome = "unknown"
            raise
        finally:
            self._telemetry.provider_call(
                self._settings.name, operation, outcome, self._clock.now() - began
            )

    @asynccontextmanager
    async def _answer(self, request: _Request, limit: float) -> AsyncIterator["ClientResponse"]:
        with _network_errors(f"{request.method} {request.path}"):
            client = self._client or await self._connect()
            answer = await self._accepted(client, request, limit)
            if answer is None:
                client = await self._renew(client)
                answer = await self._send(client, request, limit)
            try:
                if answer.status >= 300:
                    raise _refusal(answer, await answer.read())
                yield answer
            finally:
                _drop(answer)

    async def _connect(self) -> "ApiClient":
        async with self._renewing:
            if self._client is None:
                self._client = await new_client(self._settings)
            return self._client

    async def _renew(self, refused: "ApiClient") -> "ApiClient":
        """Read the credentials again: a rotated token, a certificate, or a plugin's new answer."""
        async with self._renewing:
            if self._client is refused:
                self._client = await new_client(self._settings)
                # Requests of the old client may be in flight.
                self._retired.append(refused)
                for client in self._retired[:-_RETIRED]:
                    await client.close()
                del self._retired[:-_RETIRED]
        return await self._connect()

    async def _accepted(
        self, client: "ApiClient", request: _Request, limit: float
    ) -> "ClientResponse | None":
        """Return the answer, or None if one side refused the credentials of the other one."""
        import aiohttp

        try:
            answer = await self._send(client, request, limit)
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError):
            return None
        if answer.status == 401:
            answer.release()
            return None
        return answer

    async def _send(self, client: "ApiClient", request: _Request, limit: float) -> "ClientResponse":
        import aiohttp

        is_creation = paths.operation(request.method, request.path) == "CreatePod"
        with credential_errors():
            # Without the body: it is plain JSON, which the library would copy value by value.
            method, url, headers, _, _ = await client.param_serialize(
                request.method,
                request.path,
                query_params=list((request.query or {}).items()),
                header_params={
                    "Accept": METADATA if is_creation else ACCEPT,
                    "Content-Type": MERGE_PATCH if request.method == "PATCH" else JSON,
                },
                auth_settings=_AUTHENTICATION,
            )
        if request.changes:
            left = self._leads()
            if left <= 0:
                # The outcome is that of the requests of the process that leads now.
                text = "not sent, because this process no longer leads the fleet"
                raise OutcomeUnknownError(f"{request.method} {request.path}: {text}")
            limit = min(limit, left)
        # aiohttp rounds longer times up to whole seconds.
        timeout = aiohttp.ClientTimeout(total=limit, ceil_threshold=math.inf)
        answer = await client.rest_client.request(
            method, url, headers=headers, body=request.body, _request_timeout=timeout
        )
        found: ClientResponse = answer.response
        return found


def _drop(answer: "ClientResponse") -> None:
    """Close the connection of an answer that was not read to its end, such as a watch.

    aiohttp alone would wait in the background for the API server to close TLS, also after `close`.
    """
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


async def _lines(answer: "ClientResponse") -> AsyncIterator[bytes]:
    while line := await answer.content.readline():
        yield line


@contextmanager
def _network_errors(request: str) -> Iterator[None]:
    """Turn errors of the connection into those of the port."""
    import aiohttp

    try:
        yield
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        cause = error.__cause__
        mismatch = isinstance(cause, ssl.SSLCertVerificationError) and (
            cause.verify_code in _NAME_MISMATCH
        )
        code = OTHER_NAME if mismatch else "Certificate"
        raise refusal(FailureClass.CONFIGURATION, code, str(error)) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        # No connection, so nothing was sent.
        raise refusal(FailureClass.UNKNOWN, UNREACHABLE, str(error)) from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        # ValueError: a line of a watch is longer than the client's buffer.
        text = str(error) or type(error).__name__
        raise OutcomeUnknownError(f"{request}: {text}") from error


def _refusal(answer: "ClientResponse", content: bytes) -> ProviderError | OutcomeUnknownError:
    try:
        body = json.loads(content)
    except ValueError:
        body = {"message": content[:MAX_TEXT].decode(errors="replace")}
    wait = answer.headers.get("Retry-After", "")
    return error_of(
        answer.status,
        body if isinstance(body, dict) else {},
        float(wait) if wait.isascii() and wait.isdigit() else None,
    )
