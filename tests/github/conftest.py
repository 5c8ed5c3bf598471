"""The lab's GitHub on a clock that only tests advance, and a client of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import Instant, Seconds
from lab.github.administration import Administration
from lab.github.server import LabGitHub
from lab.github.settings import (
    JobSpec,
    LabApp,
    LabGitHubOptions,
    LabOrganization,
    LabRunnerGroup,
)
from tests.github.doubles import ManualClock, RememberingTelemetry
from tests.github.traffic import Traffic


@dataclass(frozen=True)
class KeyPair:
    private_pem: str
    public_pem: bytes


@pytest.fixture(scope="session")
def keys() -> KeyPair:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(private.decode(), public)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def telemetry() -> RememberingTelemetry:
    return RememberingTelemetry()


@dataclass
class World:
    """The lab's GitHub, the requests that arrive there, and the keys and clock for a client."""

    github: LabGitHub
    traffic: Traffic
    url: str
    clock: ManualClock
    telemetry: RememberingTelemetry
    keys: KeyPair

    @property
    def administration(self) -> Administration:
        """What owners and operators change."""
        return self.github.administration

    @property
    def registered_by(self) -> list[int]:
        """The installations that registered the runners, in order."""
        return [runner.installation for runner in self.github.runners]

    @asynccontextmanager
    async def client(
        self, apps: tuple[int, ...] = (1,), patience: float = 10.0, concurrency: int = 80
    ) -> AsyncIterator[GitHubClient]:
        keys = tuple(AppKey(app, self.keys.private_pem) for app in apps)
        settings = GitHubSettings(self.url, keys, timeout=patience, concurrency=concurrency)
        client = GitHubClient(settings, self.clock, self.telemetry)
        try:
            yield client
        finally:
            await client.close()


class LabClock:
    """The manual clock without timers: the lab's own deadlines are days away, and no test reaches them."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> Instant:
        return self._clock.at

    async def sleep(self, seconds: Seconds) -> None:
        await asyncio.Event().wait()


def job_spec(name: str = "test", repository: str = "acme/widgets", **more: Any) -> JobSpec:
    """Return a job of a minute with the label `gpu`."""
    return JobSpec(name, repository, **{"labels": ("gpu",), "seconds": 60.0, **more})


ORGANIZATIONS = (
    LabOrganization("acme", ("widgets", "lab", "old"), (LabRunnerGroup("gpu", id=5),)),
    LabOrganization("umbrella", ("lab",)),
)
# An Enterprise Server, which has a path and no limits. Deliveries stay pending until a test ends them.
OPTIONS = LabGitHubOptions(base_path="/api/v3", delivery_concurrency=0)


@pytest_asyncio.fixture
async def world(
    keys: KeyPair, clock: ManualClock, telemetry: RememberingTelemetry
) -> AsyncIterator[World]:
    apps = [LabApp(number, keys.public_pem, "secret", organizations=()) for number in (1, 2)]
    traffic = Traffic()
    github = LabGitHub(
        apps, ORGANIZATIONS, LabClock(clock), OPTIONS, clock.now, middlewares=[traffic.watch]
    )
    github.administration.install(1, "acme", 77)
    await github.start()
    try:
        yield World(github, traffic, github.api_url, clock, telemetry, keys)
    finally:
        await github.close()


@pytest_asyncio.fixture
async def client(world: World) -> AsyncIterator[GitHubClient]:
    async with world.client() as client:
        yield client
