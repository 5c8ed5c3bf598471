"""Measures the console's pages: how long they take, and how long they hold the event loop.

Run: `PYTHONPATH=. python benchmarks/console_cost.py [--large]`. Each page is asked for over HTTP from the real
server, with 66 SKUs, 3,500 machines and 10,000 jobs. `takes` is the least real time of several answers,
`works` their least CPU time, with that of the client, and `holds` the longest step of the event loop in CPU
time (`timed_loop`).
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from autoscaler.console.assets import read_assets
from autoscaler.console.links import GitHubPages
from autoscaler.console.pages import Pages
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.reconciler import Pace
from autoscaler.model.identifiers import Address, Seconds
from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.planner.planner import plan
from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.operators.console import ConsoleEndpoint
from autoscaler.server.tokens import BearerTokens, WrongTokens
from benchmarks.crowded_fleet import REPOSITORY, Crowd
from benchmarks.full_fleet import FullFleet
from benchmarks.timed_loop import TimedLoop

TRIES = 7
TOKEN = "t" * 40
PAGES = (
    "/",
    "/skus/sku-00",
    "/jobs",
    "/jobs?state=in_progress",
    "/machines",
    "/repositories",
    f"/repositories/{REPOSITORY}",
    "/cost",
)


@dataclass(frozen=True)
class Figures:
    """What one page took, in seconds."""

    takes: Seconds
    works: Seconds
    holds: Seconds
    length: int


class NoWebhook:
    """No endpoint."""

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Add nothing."""


def main() -> None:
    """Print a line for each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="100,000 machines and jobs instead")
    size = (100_000, 100_000) if parser.parse_args().large else (3_500, 10_000)
    print(f"66 SKUs, {size[0]:,} machines, {size[1]:,} jobs")
    loop = TimedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(measure(size, loop))


async def measure(size: tuple[int, int], loop: TimedLoop) -> None:
    """Read each page of the console of such a fleet."""
    fleet = FullFleet(Crowd(*size, skus=66, most_machines=size[0]), 1.0, Pace())
    with tempfile.TemporaryDirectory() as folder:
        async with fleet.at_rest(Path(folder)) as controller:
            controller.reconciler.plan = plan(controller.journal.fleet())
            await read_all(controller.queries, loop)


async def read_all(queries: FleetQueries, loop: TimedLoop) -> None:
    """Serve the console of these answers, and read each page."""
    settings = ServerSettings(listen=Address("127.0.0.1", 0))
    async with (
        Serving(settings, NoWebhook(), [console_of(queries)]) as serving,
        signed_in(f"http://{serving.address}") as http,
    ):
        for path in PAGES:
            found = [await read(http, path, loop) for _ in range(TRIES)]
            print_line(path, found)


def console_of(queries: FleetQueries) -> ConsoleEndpoint:
    """Return the console of these answers. Its only token is `TOKEN`."""
    assets = read_assets()
    names = {asset.name: asset.address for asset in assets}
    tokens = BearerTokens([(TOKEN.encode(), Operator(OperatorName("reader"), Role.READ))])
    return ConsoleEndpoint(
        queries,
        Pages("ci", GitHubPages("https://github.com"), names),
        assets,
        lambda: tokens,
        WrongTokens(asyncio.get_running_loop().time),
        secure=False,
    )


@asynccontextmanager
async def signed_in(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the console at this URL, with the cookie of its session."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(url, cookie_jar=jar) as http:
        form, origin = {"token": TOKEN}, {"Origin": url}
        async with http.post("/sign-in", data=form, headers=origin) as answer:
            answer.raise_for_status()
        yield http


async def read(http: aiohttp.ClientSession, path: str, loop: TimedLoop) -> Figures:
    """Read a page. Waits first, because the first page is used again for a second."""
    await asyncio.sleep(1.05 if path == "/" else 0.0)
    loop.steps.causes.clear()
    loop.steps.measuring = True
    began, worked = time.perf_counter(), time.process_time()
    async with http.get(path) as answer:
        body = await answer.read()
        answer.raise_for_status()
    took, worked = time.perf_counter() - began, time.process_time() - worked
    loop.steps.measuring = False
    return Figures(took, worked, loop.steps.longest, len(body))


def print_line(path: str, found: Sequence[Figures]) -> None:
    """Print the figures of one page."""
    takes, works = min(one.takes for one in found), min(one.works for one in found)
    holds = min(one.holds for one in found)
    kilobytes = found[0].length / 1024
    print(
        f"{path:40} takes {1000 * takes:7.1f} ms   works {1000 * works:6.1f} ms   "
        f"holds {1000 * holds:6.1f} ms   {kilobytes:6.0f} KB"
    )


if __name__ == "__main__":
    main()
