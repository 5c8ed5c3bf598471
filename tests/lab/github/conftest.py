"""A lab's GitHub for each test, on a clock that only tests advance."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from lab.github.server import LabGitHub
from lab.github.settings import (
    LabApp,
    LabGitHubOptions,
    LabOrganization,
    LabRunnerGroup,
    Patience,
)
from tests.lab.github.harness import APP, SECRET, Client, HandClock, Key, Listener, make_key

ORGANIZATIONS = (
    LabOrganization(
        "acme",
        ("rocket", "anvil"),
        (LabRunnerGroup("gpu"), LabRunnerGroup("anvils", ("anvil",))),
    ),
    LabOrganization("globex", ("reactor",)),
)

Make = Callable[..., Awaitable[Client]]


@pytest.fixture(scope="session")
def key() -> Key:
    return make_key()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    found = Listener()
    await found.start()
    yield found
    await found.close()


@pytest.fixture
async def make(key: Key, clock: HandClock) -> AsyncIterator[Make]:
    """Start a lab with options, and a webhook where `url` is given."""
    async with AsyncExitStack() as stack:

        async def start(url: str | None = None, wall: Any = None, **options: Any) -> Client:
            apps = [LabApp(APP, key.public, SECRET, url)]
            chosen = LabGitHubOptions(**{"patience": Patience(real_floor=0.0), **options})
            more = {"wall": wall} if wall is not None else {}
            lab = LabGitHub(apps, ORGANIZATIONS, clock, chosen, **more)
            await lab.start()
            stack.push_async_callback(lab.close)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            return Client(lab, key, session)

        yield start


@pytest.fixture
async def client(make: Make) -> Client:
    """A lab without limits and webhooks."""
    return await make()
