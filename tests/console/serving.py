"""The console behind the real server on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from autoscaler.console.assets import read_assets
from autoscaler.console.links import GitHubPages
from autoscaler.console.pages import Pages
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.server.listening.serving import Serving
from autoscaler.server.operators.console import ConsoleEndpoint
from autoscaler.server.tokens import MOST_WRONG, BearerTokens, WrongTokens
from tests.server.fakes import LOOPBACK

READER, OPERATOR = "r" * 40, "o" * 40


class Tokens:
    """The valid tokens, which a test can change."""

    def __init__(self) -> None:
        self.valid = {READER: ("on-call", Role.READ), OPERATOR: ("alice", Role.OPERATE)}

    def __call__(self) -> BearerTokens[Operator]:
        return BearerTokens(
            (token.encode(), Operator(OperatorName(name), role))
            for token, (name, role) in self.valid.items()
        )


@dataclass
class Console:
    """A console, its address and its tokens."""

    endpoint: ConsoleEndpoint
    url: str
    tokens: Tokens


def pages() -> Pages:
    """Return the pages of the fleet `ci`."""
    assets = {asset.name: asset.address for asset in read_assets()}
    return Pages("ci", GitHubPages("https://github.com"), assets)


@asynccontextmanager
async def served(
    queries: FleetQueries, *, secure: bool = False, wrong_tokens: int = MOST_WRONG
) -> AsyncIterator[Console]:
    """Serve the console of these answers. `wrong_tokens` are the most that an address may try."""
    tokens = Tokens()
    tried = WrongTokens(asyncio.get_running_loop().time, wrong_tokens)
    endpoint = ConsoleEndpoint(queries, pages(), read_assets(), tokens, tried, secure=secure)
    async with Serving(LOOPBACK, NoWebhook(), [endpoint]) as serving:
        yield Console(endpoint, f"http://{serving.address}", tokens)


class NoWebhook:
    """No endpoint."""

    def add_to(self, app: web.Application, _patience: float, /) -> None:
        """Add nothing."""
