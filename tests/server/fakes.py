"""A server on loopback with in-memory ports behind it, and what its callers send."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from autoscaler.controller.ports.bootstrap import (
    Assigned,
)
from autoscaler.model.identifiers import (
    Address,
    Instant,
    RunnerName,
)
from autoscaler.server.health import HealthEndpoint
from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.machines.bootstrap import BootstrapEndpoint, BootstrapLimits
from autoscaler.server.webhook import WebhookEndpoint, WebhookLimits
from tests.patience import PATIENCE
from tests.server.doubles import (
    MACHINE,
    NONCE,
    CountingTelemetry,
    Inbox,
    ScriptedBootstrap,
    StillClock,
    reading,
)

SECRET = b"a webhook secret"
AGENT = b"print('agent')\n"
JIT_CONFIG = "jit-config-of-one-runner"
PROOF = b"\x30\x82 a signed document"
ATTESTATION: dict[str, Any] = {
    "protocol": 1,
    "provider": "us-east-1",
    "proof": base64.b64encode(PROOF).decode(),
    "nonce": NONCE,
    "agent": "1.0",
}
ASSIGNMENT = Assigned(RunnerName("ci-0123-m-1"), JIT_CONFIG, {"sku": "gpu"})
STEPS: dict[str, dict[str, Any]] = {
    "stage": {"stage": "driver"},
    "health-checks": {"passed": True, "checks": []},
    "poll": {"wait": 0},
    "acknowledge": {"runner": "ci-0123-m-1"},
    "heartbeat": {},
    "may-release": {},
    "release": {},
    "exit": {"detail": "runner left"},
}
LOOPBACK = ServerSettings(listen=Address("127.0.0.1", 0), shutdown=1.0)


def parse_job(body: bytes, _: Instant) -> object | None:
    """Return the job, or None for another action. Raises ValueError like the real parser."""
    job = json.loads(body.decode())
    if not isinstance(job, dict) or not isinstance(job.get("action"), str):
        raise ValueError("no action")  # noqa: TRY004
    return job if job["action"] in {"queued", "waiting", "in_progress", "completed"} else None


def signature(body: bytes) -> str:
    return "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()


def verify(body: bytes, header: str | None) -> bool:
    return header is not None and hmac.compare_digest(header.encode(), signature(body).encode())


def delivery_headers(
    body: bytes, delivery: str = "1", event: str = "workflow_job"
) -> dict[str, str]:
    """Return the headers that GitHub sends with this body."""
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": signature(body),
    }


def _ping() -> bytes:
    body = b"{}"
    headers = {
        "Host": "x",
        "Content-Length": str(len(body)),
        **delivery_headers(body, event="ping"),
    }
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"POST /webhook HTTP/1.1\r\n{lines}\r\n".encode() + body


PING = _ping()
"""A request with GitHub's signature, whose connection stays open."""


@dataclass
class Backstage:
    """All ports behind one server under test."""

    telemetry: CountingTelemetry = field(default_factory=CountingTelemetry)
    clock: StillClock = field(default_factory=StillClock)
    inbox: Inbox = field(default_factory=Inbox)
    bootstrap: ScriptedBootstrap = field(default_factory=ScriptedBootstrap)
    webhook_limits: WebhookLimits | None = None
    bootstrap_limits: BootstrapLimits | None = None
    earlier: tuple[bytes, ...] = ()
    unhealthy: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)
    metrics: tuple[tuple[bytes, ...], float] = ((), 1.0)
    scrapes: int = 0
    exposed: Iterable[bytes] = (b"up", b" 1\n")

    def _exposed(self) -> tuple[Iterable[bytes], str]:
        self.scrapes += 1
        return self.exposed, "text/plain; v=1"

    def serving(
        self, settings: ServerSettings = LOOPBACK, webhook: WebhookEndpoint | None = None
    ) -> Serving:
        telemetry = self.telemetry
        webhook = webhook or WebhookEndpoint(
            verify,
            reading(parse_job, self.inbox.accept),
            self.clock,
            telemetry,
            self.webhook_limits,
        )
        machines = BootstrapEndpoint(
            self.bootstrap, AGENT, telemetry, self.bootstrap_limits, self.earlier
        )
        return Serving(settings, webhook, [machines, self.health])

    @property
    def health(self) -> HealthEndpoint:
        """The endpoint of /healthz, /readyz and /metrics."""
        return HealthEndpoint(
            lambda: self.unhealthy, lambda: self.unready, self._exposed, *self.metrics
        )


@dataclass
class Caller:
    """A client of one running server, with the ports behind that server."""

    session: aiohttp.ClientSession
    serving: Serving
    behind: Backstage

    async def post(self, path: str, **options: Any) -> "Reply":
        async with self.session.post(path, **options) as answer:
            return Reply(answer.status, await answer.read(), answer.headers)

    async def get(self, path: str, **options: Any) -> "Reply":
        async with self.session.get(path, **options) as answer:
            return Reply(answer.status, await answer.read(), answer.headers)

    async def deliver(
        self, body: bytes, delivery: str = "1", event: str = "workflow_job", **headers: str
    ) -> "Reply":
        """Send a signed delivery. `headers` replace GitHub's, with underscores in place of dashes."""
        sent = delivery_headers(body, delivery, event)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.post("/webhook", data=body, headers=sent)

    async def send_step(self, step: str, body: object = None, nonce: str = NONCE) -> "Reply":
        """Send one step of MACHINE."""
        return await self.post(
            f"/bootstrap/machines/{MACHINE}/{step}",
            json={} if body is None else body,
            headers={"Authorization": f"Bearer {nonce}"},
        )


@dataclass(frozen=True)
class Reply:
    """An answer that was read completely."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@asynccontextmanager
async def running(
    behind: Backstage | None = None,
    settings: ServerSettings = LOOPBACK,
    webhook: WebhookEndpoint | None = None,
) -> AsyncIterator[Caller]:
    """A server on loopback, and a client of it."""
    behind = behind or Backstage()
    async with behind.serving(settings, webhook) as serving:
        base = f"http://{serving.address}"
        async with aiohttp.ClientSession(base) as session:
            yield Caller(session, serving, behind)


def with_webhook_alone(settings: ServerSettings = LOOPBACK) -> ServerSettings:
    return replace(settings, webhook_listen=Address("127.0.0.1", 0))


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until the condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
