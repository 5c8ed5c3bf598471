"""Two servers on loopback: one leads, and the other one passes requests on to it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp
from aiohttp import web

from autoscaler.controller.ports.replicas import Lease, Replica
from autoscaler.server.listening.serving import Endpoint, Serving
from autoscaler.server.machines.bootstrap import BootstrapEndpoint
from autoscaler.server.replicas.forwarding import ForwardEndpoint, ForwardLimits
from tests.server.fakes import AGENT, LOOPBACK, Backstage, Caller

SECRET = "the secret of epoch 7"


@dataclass
class Echo:
    """Answers every path with what it received, and remembers it. `answer` replaces the answer."""

    paths: Sequence[str] = ("/{path:.*}",)
    answer: Callable[[web.Request], web.StreamResponse] | None = None
    seen: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def add_to(self, app: web.Application, _patience: float, /) -> None:
        """Add a route of every method."""
        for path in self.paths:
            app.router.add_route("*", path, self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        return web.json_response({}) if self.answer is None else self.answer(request)

    @property
    def last(self) -> web.Request:
        """The last request."""
        return self.seen[-1]


@dataclass
class Pair:
    """Both servers, the lease as the follower sees it, and clients of both."""

    leader: Serving
    follower: Serving
    lease: Lease | None
    client: aiohttp.ClientSession
    direct: aiohttp.ClientSession
    behind: Backstage
    forward: ForwardEndpoint

    @property
    def caller(self) -> Caller:
        """A client of the follower, with the ports behind the leader."""
        return Caller(self.client, self.follower, self.behind)


def lease_of(url: str, **changes: object) -> Lease:
    """Return the lease of another replica at this URL."""
    holder = Replica("leader", url)
    lease = Lease(
        holder, 7, SECRET, 1_000_000.0, expired=False, mine=False, server=1.0, given_up=False
    )
    return replace(lease, **changes)  # type: ignore[arg-type]


def machines(behind: Backstage) -> BootstrapEndpoint:
    """Return the machines' endpoint of the leader."""
    return BootstrapEndpoint(
        behind.bootstrap, AGENT, behind.telemetry, behind.bootstrap_limits, behind.earlier
    )


@asynccontextmanager
async def replicas(
    *endpoints: Endpoint,
    most: int = 64,
    limits: ForwardLimits | None = None,
    secret: str | None = SECRET,
) -> AsyncIterator[Pair]:
    """A leader with these endpoints, or else those of the machines, and a follower with its own health."""
    behind, own = Backstage(), Backstage()
    async with AsyncExitStack() as stack:
        leading = Serving(LOOPBACK, None, endpoints or [machines(behind)], secret=lambda: secret)
        await stack.enter_async_context(leading)
        pair: Pair | None = None

        def lease() -> Lease | None:
            return None if pair is None else pair.lease

        forward = ForwardEndpoint(lease, None, None, most, limits)
        following = Serving(LOOPBACK, None, [own.health, forward])
        await stack.enter_async_context(following)
        urls = [f"http://{one.address}" for one in (following, leading)]
        jar = aiohttp.DummyCookieJar()
        client, direct = [
            await stack.enter_async_context(aiohttp.ClientSession(url, cookie_jar=jar))
            for url in urls
        ]
        pair = Pair(leading, following, lease_of(urls[1]), client, direct, behind, forward)
        yield pair
