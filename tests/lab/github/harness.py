"""Shared by these tests: a clock that only tests advance, a client, a runner and a webhook listener."""

import asyncio
import base64
import heapq
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import jwt
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lab.github.server import LabGitHub
from lab.github.settings import JobSpec
from tests.patience import PATIENCE

EPOCH = 1_800_000_000.0
APP = 1234
SECRET = "a webhook secret"
REPOSITORY = "acme/rocket"


class HandClock:
    """A clock that stands still until `advance`."""

    def __init__(self) -> None:
        self._now = EPOCH
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and wake each sleeper at its time."""
        until = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = until
        await settle()


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a result of real I/O."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - sockets have no event to wait for
            await asyncio.sleep(0.002)


@dataclass(frozen=True)
class Key:
    """An App's key pair, in PEM."""

    private: bytes
    public: bytes


def make_key() -> Key:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Key(private, public)


def job(name: str = "test", labels: tuple[str, ...] = ("gpu",), **more: Any) -> JobSpec:
    """A job of a minute."""
    return JobSpec(**{"repository": REPOSITORY, "seconds": 60.0, **more}, name=name, labels=labels)


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    json: Any

    @property
    def next_url(self) -> str | None:
        """The Link header's next page."""
        for part in self.headers.get("link", "").split(", "):
            url, _, rel = part.partition("; ")
            if rel == 'rel="next"':
                return url[1:-1]
        return None


@dataclass
class Client:
    """A client of one lab, as an App and as its installation."""

    lab: LabGitHub
    key: Key
    session: aiohttp.ClientSession
    tokens: dict[str, str] = field(default_factory=dict)

    def jwt(self, **claims: Any) -> str:
        now = int(time.time())
        return jwt.encode(
            {"iat": now - 60, "exp": now + 540, "iss": str(APP), **claims},
            self.key.private,
            algorithm="RS256",
        )

    async def call(self, method: str, path: str, secret: str | None, body: Any = None) -> Answer:
        url = path if path.startswith("http") else self.lab.api_url + path
        headers = {"Authorization": f"Bearer {secret}"} if secret is not None else {}
        data = json.dumps(body) if isinstance(body, dict | list) else body
        async with self.session.request(method, url, headers=headers, data=data) as answer:
            text = await answer.read()
            lowered = {name.lower(): value for name, value in answer.headers.items()}
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, lowered, json.loads(text) if is_json else None)

    async def as_app(self, method: str, path: str, body: Any = None) -> Answer:
        return await self.call(method, path, self.jwt(), body)

    async def token(self, org: str = "acme") -> str:
        if org not in self.tokens:
            found = await self.as_app("GET", f"/orgs/{org}/installation")
            path = f"/app/installations/{found.json['id']}/access_tokens"
            answer = await self.as_app("POST", path)
            assert answer.status == 201
            self.tokens[org] = answer.json["token"]
        return self.tokens[org]

    async def ask(self, method: str, path: str, body: Any = None, org: str = "acme") -> Answer:
        return await self.call(method, path, await self.token(org), body)

    async def register(
        self, name: str, labels: tuple[str, ...] = ("gpu",), group: int = 1, at: str = "/orgs/acme"
    ) -> Answer:
        body = {"name": name, "runner_group_id": group, "labels": list(labels)}
        return await self.ask("POST", f"{at}/actions/runners/generate-jitconfig", body)

    async def runner(self, name: str, labels: tuple[str, ...] = ("gpu",), **more: Any) -> "StandIn":
        """A registered runner, connected."""
        answer = await self.register(name, labels, **more)
        assert answer.status == 201, answer
        runner = StandIn(self, answer.json["runner"]["id"], answer.json["encoded_jit_config"])
        assert await runner.send("connect") == 204
        return runner


class StandIn:
    """A runner that does single steps of the lab's protocol."""

    def __init__(self, client: Client, number: int, encoded: str) -> None:
        self.client = client
        self.id = number
        self.config: dict[str, Any] = json.loads(base64.b64decode(encoded))

    async def post(self, step: str, **body: Any) -> Answer:
        url = f"{self.config['server']}/lab/runners/{self.config['runner_id']}/{step}"
        return await self.client.call("POST", url, self.config["token"], body)

    async def send(self, step: str, **body: Any) -> int:
        return (await self.post(step, **body)).status

    async def take(self, wait: float = 0.0) -> int | None:
        """The id of the job in the answer to a poll, if there is one."""
        answer = await self.post("message", wait=wait)
        assert answer.status in {200, 204}, answer
        return answer.json["job"]["id"] if answer.status == 200 else None

    async def run(self) -> int:
        """Take a job and run it to its end."""
        number = await self.take(5.0)
        assert number is not None
        assert await self.send("started", job=number) == 204
        assert await self.send("completed", job=number, conclusion="success") == 204
        return number


class Listener:
    """A webhook endpoint that keeps what it got and answers as a test wants."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.stall = asyncio.Event()
        self.stall.set()
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application()
        application.add_routes([web.post("/webhook", self._receive)])
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/webhook"

    async def close(self) -> None:
        self.stall.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        await self.stall.wait()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append((headers, body))
        return web.Response(status=self.status, text="thanks")

    def events(self) -> list[dict[str, Any]]:
        """The workflow_job events, in order of arrival."""
        return [
            json.loads(body)
            for headers, body in self.got
            if headers["x-github-event"] == "workflow_job"
        ]

    def actions(self) -> list[tuple[str, str]]:
        """(job's name, action) of each event."""
        return [(event["workflow_job"]["name"], event["action"]) for event in self.events()]
