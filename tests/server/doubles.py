"""In-memory stand-ins for the ports behind the server: telemetry, clock, inbox, bootstrap."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    AttestationAnswer,
    BootstrapRefusedError,
)
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import (
    Instant,
    MachineId,
    RunnerName,
    Seconds,
)
from autoscaler.model.machines.machine import ExitReason
from autoscaler.server.webhook import Accept

NONCE = "0f" * 32
MACHINE = MachineId("00c0ffee00c0ffee")


class CountingTelemetry(Telemetry):
    """A telemetry that counts the calls of the server."""

    def __init__(self) -> None:
        self.deliveries: Counter[str] = Counter()
        self.steps: Counter[tuple[str, str]] = Counter()

    def delivery(self, answer: DeliveryAnswer) -> None:
        self.deliveries[answer] += 1

    def bootstrap(self, step: str, answer: str) -> None:
        self.steps[step, answer] += 1


@dataclass
class StillClock:
    """A clock that stands still."""

    moment: Instant = 1_000_000.0

    def now(self) -> Instant:
        return self.moment

    async def sleep(self, seconds: Seconds) -> None:
        self.moment += seconds
        await asyncio.sleep(0)


@dataclass
class Inbox:
    """Keeps deliveries by id. `open` can be cleared to make the disk slow, `broken` set to fail it."""

    kept: dict[str, Delivery] = field(default_factory=dict)
    broken: bool = False
    open: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    def __post_init__(self) -> None:
        self.open.set()

    async def accept(self, delivery: Delivery) -> bool | None:
        self.asked += 1
        await self.open.wait()
        if self.broken:
            raise StoreError("disk full")
        if delivery.id in self.kept:
            return False
        self.kept[delivery.id] = delivery
        return True


Parse = Callable[[bytes, Instant], object | None]


def reading(parse: Parse, accept: Accept) -> Accept:
    """Like the controller's intake: parses a delivery at once, and stores it if it is needed."""

    def take(delivery: Delivery) -> Awaitable[bool | None]:
        if parse(delivery.body, delivery.received_at) is not None:
            return accept(delivery)
        return asyncio.sleep(0)

    return take


class ScriptedBootstrap(BootstrapService):
    """Knows one machine and one nonce. `error` is raised by whatever is asked next, `assignment` given once.

    Proofs are being checked while `go_on` is clear, a list is waited for while `listed` is.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.assignment: Assigned | None = None
        self.asked = 0
        self.said: list[tuple[object, ...]] = []
        self.polling = asyncio.Event()
        self.poll_cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.listed = asyncio.Event()
        self.listed.set()

    async def _count(self, *words: object) -> None:
        self.asked += 1
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        self.said.append(words)

    def authenticate(self, machine: MachineId, nonce: str) -> None:
        self._known(machine, nonce)

    def _known(self, machine: MachineId, nonce: str) -> None:
        if (machine, nonce) != (MACHINE, NONCE):
            raise BootstrapRefusedError(401, "nonce")

    async def attest(
        self,
        provider: str,
        proof: bytes,
        nonce: str,
        protocol: int,
        agent: str,
        checked: Callable[[], None] = lambda: None,
    ) -> AttestationAnswer:
        await self._count("attest", provider, proof, nonce, protocol, agent)
        checked()
        await self.listed.wait()
        return AttestationAnswer(
            MACHINE, "linux.gpu", {"disk_gb": 10, "github": "https://github.com"}
        )

    async def stage(self, machine: MachineId, nonce: str, stage: str) -> None:
        self._known(machine, nonce)
        await self._count("stage", stage)

    async def health_checks(
        self, machine: MachineId, nonce: str, passed: bool, detail: str, runner_version: str = ""
    ) -> None:
        self._known(machine, nonce)
        await self._count("health-checks", passed, detail, runner_version)

    async def poll(self, machine: MachineId, nonce: str, wait: Seconds) -> Assigned | None:
        self._known(machine, nonce)
        await self._count("poll", wait)
        if self.assignment is not None:
            assignment, self.assignment = self.assignment, None
            return assignment
        self.polling.set()
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self.poll_cancelled.set()
            raise
        return None

    async def acknowledge(self, machine: MachineId, nonce: str, runner: RunnerName) -> None:
        self._known(machine, nonce)
        await self._count("acknowledge", runner)

    async def heartbeat(self, machine: MachineId, nonce: str) -> None:
        self._known(machine, nonce)
        await self._count("heartbeat")

    async def may_release(self, machine: MachineId, nonce: str) -> bool:
        self._known(machine, nonce)
        await self._count("may_release")
        return True

    async def release(self, machine: MachineId, nonce: str) -> int:
        self._known(machine, nonce)
        await self._count("release")
        return 422

    async def exited(
        self,
        machine: MachineId,
        nonce: str,
        detail: str,
        reason: ExitReason = ExitReason.UNKNOWN,
    ) -> None:
        self._known(machine, nonce)
        await self._count("exited", detail, reason)
