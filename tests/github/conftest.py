"""A small GitHub on loopback and a client of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

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
from tests.github.doubles import ManualClock, RememberingTelemetry
from tests.github.standin import StandIn


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
    """The small GitHub, its URL, and the keys and clock for a client."""

    github: StandIn
    url: str
    clock: ManualClock
    telemetry: RememberingTelemetry
    keys: KeyPair

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


@pytest_asyncio.fixture
async def world(
    keys: KeyPair, clock: ManualClock, telemetry: RememberingTelemetry
) -> AsyncIterator[World]:
    github = StandIn(clock, {"1": keys.public_pem, "2": keys.public_pem})
    github.installed = {("1", "acme"): 77}
    github.groups = {"acme": [(1, "Default"), (5, "gpu")]}
    async with github.serving() as url:
        yield World(github, url, clock, telemetry, keys)


@pytest_asyncio.fixture
async def client(world: World) -> AsyncIterator[GitHubClient]:
    async with world.client() as client:
        yield client
