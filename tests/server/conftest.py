"""A running server and a client of it, with all ports behind it in memory, or with a real store."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.server.listening.serving import Serving
from autoscaler.server.webhook import WebhookEndpoint, WebhookLimits
from autoscaler.store.sqlite.store import SqliteStore
from tests.server.doubles import CountingTelemetry, StillClock, reading
from tests.server.fakes import LOOPBACK, Caller, running
from tests.server.fronts import BODY_TIMEOUT, SECRETS, Front


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    async with running() as caller:
        yield caller


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once, because migrating a new file takes longer than most of these tests."""

    async def make(path: Path) -> None:
        await (await SqliteStore.open(path)).close()

    path = tmp_path_factory.mktemp("empty") / "state.db"
    asyncio.run(make(path))
    return path


@pytest_asyncio.fixture
async def front(tmp_path: Path, empty_store: Path) -> AsyncIterator[Front]:
    path, telemetry = tmp_path / "state.db", CountingTelemetry()
    shutil.copy(empty_store, path)
    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(path)
        stack.push_async_callback(store.close)
        endpoint = WebhookEndpoint(
            lambda body, header: verify_signature(body, header, SECRETS),
            reading(parse_workflow_job, store.accept),
            StillClock(),
            telemetry,
            WebhookLimits(body_timeout=BODY_TIMEOUT),
        )
        serving = Serving(replace(LOOPBACK, shutdown=0.2), endpoint, [])
        await stack.enter_async_context(serving)
        yield Front(serving, path, telemetry)
