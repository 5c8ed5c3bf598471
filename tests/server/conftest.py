"""A running server and a client of it, with everything behind it in memory."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.server.fakes import Caller, running


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    async with running() as caller:
        yield caller
