"""Passes requests on to the leader: what a replica serves that does not lead.

The client gets the leader's answer as it arrives, or 503 with Retry-After if there is none. An answer that
breaks off also breaks off for the client. No request is sent twice: the client knows whether to repeat it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from autoscaler.controller.ports.replicas import Lease
from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bodies import REFUSED, Bodies, BodyRefusedError
from autoscaler.server.listening.connection import Connection
from autoscaler.server.listening.passed_on import PASSED_ON, proof_headers
from autoscaler.server.machines.bootstrap import BootstrapLimits
from autoscaler.server.machines.requests import MAX_WAIT
from autoscaler.server.operators.admin import MAX_FILE_BYTES, PLAN_TIMEOUT
from autoscaler.server.refusal_log import RefusalLog
from autoscaler.server.replicas import hop_by_hop
from autoscaler.server.replicas.silence import Silence

RETRY_AFTER: Seconds = 2.0

OWN_PATHS: Final = frozenset({"/webhook", "/healthz", "/readyz", "/metrics"})
"""What each replica answers itself."""

_PLAN_PATH = "/admin/plan"
_UNAVAILABLE = 503
_BY_CLIENT = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp's client would add if the request has none."""

Leader = Callable[[], Lease | None]
"""Returns the lease as this process last saw it, or None while it does not reach the store."""


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """Times of a request that is passed on.

    `silence` is the longest time without a byte of the leader's answer: polls and plans are answered earlier,
    and open pages get an event every 15 seconds. The lease is looked at every `recheck` seconds, because a
    leader whose host has stopped does not close its connections. `silent_after`: see `Silence`.
    """

    connect: Seconds = 3.0
    silence: Seconds = max(MAX_WAIT, PLAN_TIMEOUT) + 5.0
    recheck: Seconds = 1.0
    silent_after: Seconds = 60.0


class NotPassedOnError(Exception):
    """The leader gave no answer. `word` and the text are for the client, `cause` is for the log only."""

    def __init__(self, word: str, reason: str, cause: str = "") -> None:
        super().__init__(reason)
        self.word = word
        self.cause = cause


_NO_LEADER = (
    "no_leader",
    "no replica of the controller leads now: try again, or see the logs of the replicas",
)
_LOOP = (
    "no_leader",
    "another replica passed this request on, and this one does not lead",
    "the leader has just changed, or several replicas have the same --replica-url",
)
_BUSY = ("busy", "too many requests wait for the leader")


class ForwardEndpoint:
    """Every path but OWN_PATHS."""

    def __init__(
        self,
        leader: Leader,
        trust: ssl.SSLContext | None,
        name: str | None,
        most: int,
        limits: ForwardLimits | None = None,
    ) -> None:
        """Pass on at most `most` requests at once, each on a connection of its own (`ServerSettings.within`).

        `trust` has the CAs of the leader's certificate, and `name` is the host in that certificate: the one of
        `server.public_url`. The leader's own URL may have an IP address.

        Without `trust` (`server.insecure: true`), requests go over plain HTTP. Anyone on the network between
        the replicas, or with the leader's address, then reads the tokens, nonces and JIT configurations in
        them, as on the way from the client. The secret of the lease, too: with it, they can name any address
        as a client's.
        """
        self._leader = leader
        self._trust = trust
        self._name = name
        self._most = most
        self._limits = limits or ForwardLimits()
        self._bodies = Bodies(BootstrapLimits().body)
        self._files = Bodies(MAX_FILE_BYTES)
        self._refusals = RefusalLog()
        self._under_way: dict[asyncio.Timeout, int] = {}
        self._silence = Silence(self._limits.silent_after)
        self._session: aiohttp.ClientSession

    def is_leader_silent(self) -> bool:
        """Return whether another replica leads, and answers nothing that this one passes on."""
        lease = self._lease()
        return lease is not None and self._silence.lasts(
            lease.epoch, asyncio.get_running_loop().time()
        )

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Add the routes to a listener. When it stops, requests end at once: clients repeat them elsewhere."""
        app.router.add_get("/{path:.*}", self._answer)
        app.router.add_post("/{path:.*}", self._answer)
        app.cleanup_ctx.append(self._connections)
        app.on_shutdown.append(self._end_all)

    async def _connections(self, _: web.Application) -> AsyncIterator[None]:
        times = aiohttp.ClientTimeout(
            total=None, connect=self._limits.connect, sock_read=self._limits.silence
        )
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._most, keepalive_timeout=30.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=times,
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=_BY_CLIENT,
        ) as self._session:
            watching = asyncio.get_running_loop().create_task(self._watch_lease())
            yield
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch_lease(self) -> None:
        """End requests to a replica that does not lead any more. While the store is not reached, they go on."""
        while True:
            await asyncio.sleep(self._limits.recheck)
            lease = self._leader()
            if lease is None:
                continue
            for alarm, sent_in in self._under_way.items():
                if lease.expired or sent_in != lease.epoch:
                    _end(alarm)

    async def _end_all(self, _: web.Application) -> None:
        self._leader = _nobody
        for alarm in self._under_way:
            _end(alarm)

    def _lease(self) -> Lease | None:
        """Return the lease of another replica that leads, or None."""
        lease = self._leader()
        return None if lease is None or lease.expired or lease.mine else lease

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in OWN_PATHS:
            raise web.HTTPNotFound
        try:
            return await self._pass_on(request)
        except BodyRefusedError as error:
            status = REFUSED[error.reason]
            again = RETRY_AFTER if status == _UNAVAILABLE else None
            return error_answer(status, error.reason, again)
        except NotPassedOnError as error:
            self._refusals.note(
                "request_not_passed_on", error.word, reason=str(error), cause=error.cause or None
            )
            body = {"error": error.word, "reason": str(error)}
            answer = json_answer(_UNAVAILABLE, body)
            answer.headers["Retry-After"] = f"{RETRY_AFTER:.0f}"
            return answer

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if request.get(PASSED_ON):
            raise NotPassedOnError(*_LOOP)
        lease = self._lease()
        if lease is None:
            raise NotPassedOnError(*_NO_LEADER)
        if len(self._under_way) >= self._most:
            raise NotPassedOnError(*_BUSY)
        if request.method != hdrs.METH_POST:
            return await self._exchange(request, lease, None)
        # Read completely before anything is sent: a slow sender costs the leader nothing.
        bodies = self._files if request.path == _PLAN_PATH else self._bodies
        async with bodies.read(request) as body:
            return await self._exchange(request, lease, body)

    async def _exchange(
        self, request: web.Request, lease: Lease, body: bytes | None
    ) -> web.StreamResponse:
        """Send the request, and answer with the leader's answer. Raises: NotPassedOnError."""
        answer = None
        url = self._target(request, lease)
        headers = hop_by_hop.request_headers(request.headers)
        headers.update(proof_headers(lease.secret, request.remote or ""))
        try:
            with self._counted(lease) as alarm:
                async with (
                    alarm,
                    self._session.request(
                        request.method,
                        url,
                        headers=headers,
                        data=body,
                        allow_redirects=False,
                        ssl=self._trust or True,
                        server_hostname=self._name,
                    ) as found,
                ):
                    answer = _begun(found)
                    self._silence.note_answer()
                    await answer.prepare(request)
                    while piece := await found.content.readany():
                        await answer.write(piece)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if answer is None:
                self._silence.note_failure(lease.epoch, asyncio.get_running_loop().time())
                why = "the leading replica does not answer"
                cause = f"{lease.holder.name} at {lease.holder.url}: {_cause(error)}"
                raise NotPassedOnError("leader_unreachable", why, cause) from error
            _break_off(request)
        return answer

    @contextmanager
    def _counted(self, lease: Lease) -> Iterator[asyncio.Timeout]:
        """Count a request as under way. The timeout ends it when another replica leads."""
        alarm = asyncio.timeout(None)
        self._under_way[alarm] = lease.epoch
        try:
            yield alarm
        finally:
            del self._under_way[alarm]

    def _target(self, request: web.Request, lease: Lease) -> URL:
        """Return the URL at the leader. Raises: NotPassedOnError."""
        leader = URL(lease.holder.url)
        if leader.scheme != ("http" if self._trust is None else "https"):
            cause = f"{leader} has another scheme than this replica's server.public_url"
            raise NotPassedOnError(
                "leader_unreachable", "the leading replica has no usable URL", cause
            )
        return URL.build(
            scheme=leader.scheme,
            authority=leader.raw_authority,
            path=request.rel_url.raw_path,
            query_string=request.rel_url.raw_query_string,
            encoded=True,
        )


def _nobody() -> None:
    """Return None: the `Leader` of a listener that stops."""


def _end(alarm: asyncio.Timeout) -> None:
    if not alarm.expired():
        alarm.reschedule(asyncio.get_running_loop().time())


def _cause(error: Exception) -> str:
    """Return the words of an error, without the address and the TLS objects that aiohttp shows."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error)
    return str(error) or type(error).__name__


def _begun(found: aiohttp.ClientResponse) -> web.StreamResponse:
    """Return the leader's answer without its body. The connection stays open if the leader's stays."""
    headers = hop_by_hop.answer_headers(found.headers)
    answer = web.StreamResponse(status=found.status, reason=found.reason, headers=headers)
    if hop_by_hop.closes(found.headers):
        answer.force_close()
    return answer


def _break_off(request: web.Request) -> None:
    """Close the connection at once: the client then sees that the answer is not whole."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    connection.close_at_once()
