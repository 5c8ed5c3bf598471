"""A provider in memory: a token launches once, lists come in pages, and every answer can go wrong."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.controller.ports.capabilities import NoticeQueue, PriceReader, QuotaLimits
from autoscaler.controller.ports.provider import (
    Capabilities,
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    ProofRefusedError,
    ProvenIdentity,
    ProviderError,
)
from autoscaler.model.catalogue import LARGEST_REQUEST, CapacityType, LaunchRate, Offering
from autoscaler.model.events import LaunchedMachine, LaunchFailure, ListedMachine
from autoscaler.model.identifiers import (
    InstallationId,
    Instant,
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.simulator.world.processes import count_call
from tests.controller.fakes_store import INSTALLATION
from tests.controller.virtual_time import EPOCH
from tests.planner.fleets import EAST

IMAGE = "ami-1"
PAGE = 2


@dataclass
class Instance:
    """A machine as its provider knows it."""

    id: ProviderMachineId
    call: LaunchRequestId
    sku: SkuName
    offering: str
    launch_time: str
    installation: str = INSTALLATION
    terminated: bool = False
    leaving: bool = False
    cannot_start: bool = False
    reason: str = ""
    failure: FailureClass | None = None


@dataclass(frozen=True)
class Partly:
    """Launch so many machines, and give the failures of the others."""

    count: int
    failures: tuple[LaunchFailure, ...] = ()
    retry_after: Seconds | None = None


@dataclass(frozen=True)
class Lost:
    """The request is carried out, and its answer is lost."""


@dataclass(frozen=True)
class Sent:
    """One launch request as it was sent."""

    at: Instant
    request: str


class FakeProvider:
    """Each call takes the next outcome of its script. With an empty script it succeeds."""

    def __init__(self, name: ProviderName = EAST, latency: Seconds = 0.5) -> None:
        self.latency = latency
        self.instances: dict[ProviderMachineId, Instance] = {}
        self.sent: list[Sent] = []
        self.ended: list[tuple[ProviderMachineId, ...]] = []
        self.stuck: set[ProviderMachineId] = set()
        self.prepared: list[LaunchOrder] = []
        self.lists = 0
        self.gaps = False
        self.violations: list[str] = []
        self.on_launch: Callable[[str], None] = lambda _: None
        self.on_instance: Callable[[Instance], None] = lambda _: None
        self.on_end: Callable[[ProviderMachineId], None] = lambda _: None
        self.prepare_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.launch_script: deque[ProviderError | OutcomeUnknownError | Partly | Lost | None] = (
            deque()
        )
        self.list_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.end_script: deque[
            ProviderError | OutcomeUnknownError | dict[ProviderMachineId, str]
        ] = deque()
        self.quotas_left: dict[str, int] = {}
        self.collected: list[tuple[str, ...]] = []
        self.quota_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.collect_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.console_script: deque[ProviderError | OutcomeUnknownError | str | Seconds] = deque()
        self.protect_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.protected: list[ProviderMachineId] = []
        self.on_protect: Callable[[ProviderMachineId], Awaitable[None]] | None = None
        self.open_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.verify_script: deque[ProviderError | OutcomeUnknownError | Seconds] = deque()
        self.launch_rate: LaunchRate | None = None
        self.largest_request = LARGEST_REQUEST
        self.notices: NoticeQueue | None = None
        self.prices: PriceReader | None = None
        self.limits: QuotaLimits | None = None
        self.offered: dict[tuple[SkuName, int], tuple[Offering, ...]] = {}
        self.adopted: list[InstallationId] = []
        self.image_id = IMAGE
        self.image_script: deque[ProviderError | OutcomeUnknownError | None] = deque()
        self.images_read: list[SkuName] = []
        self.consoles_asked: list[ProviderMachineId] = []
        self._name = name
        self._answers: dict[str, tuple[str, LaunchAnswer]] = {}

    @property
    def name(self) -> ProviderName:
        return self._name

    async def open(self) -> None:
        await count_call()
        await asyncio.sleep(self.latency)
        _raise_first(self.open_script)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            largest_request=self.largest_request,
            launch_rate=self.launch_rate,
            notices=self.notices,
            prices=self.prices,
            limits=self.limits,
            protect=self.protect,
        )

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        return self.offered.get((sku, option), ())

    def adopt(self, installation: InstallationId) -> None:
        self.adopted.append(installation)

    @property
    def running(self) -> list[Instance]:
        return [instance for instance in self.instances.values() if not instance.terminated]

    async def prepare(self, order: LaunchOrder) -> str:
        self.prepared.append(order)
        await count_call()
        await asyncio.sleep(self.latency)
        _raise_first(self.prepare_script)
        await count_call()
        return json.dumps(
            {
                "launch_request": order.launch_request,
                "sku": order.sku,
                "offerings": order.offerings,
                "count": order.count,
                "token": order.token,
                "image": self.image_id,
                # On EC2 images and subnets change, so preparing again gives another text.
                "prepared": len(self.prepared),
            }
        )

    async def launch(self, request: str) -> LaunchAnswer:
        await count_call()
        self.on_launch(request)
        self.sent.append(Sent(self._now, request))
        step = self.launch_script.popleft() if self.launch_script else None
        if isinstance(step, ProviderError | OutcomeUnknownError):
            await asyncio.sleep(self.latency)
            raise step
        answer = self._carry_out(request, step if isinstance(step, Partly) else None)
        await asyncio.sleep(self.latency)
        await count_call()
        if isinstance(step, Lost):
            raise OutcomeUnknownError("the connection broke")
        return answer

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        await count_call()
        self.ended.append(tuple(machines))
        step = self.end_script.popleft() if self.end_script else {}
        if isinstance(step, ProviderError | OutcomeUnknownError):
            raise step
        for machine in machines:
            if machine not in step and machine not in self.stuck:
                self.shut_down(machine)
        await asyncio.sleep(self.latency)
        await count_call()
        return {machine: why for machine, why in step.items() if machine in machines}

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        await count_call()
        self.lists += 1
        listed = [_listed(instance) for instance in self.instances.values()]
        await asyncio.sleep(self.latency)
        for start in range(0, len(listed), PAGE):
            if self.gaps:
                yield ()
            yield tuple(listed[start : start + PAGE])
        # An error after the pages: the listed machines are real, and missing ones prove nothing.
        _raise_first(self.list_script)
        await count_call()

    async def quotas(self) -> Mapping[str, int]:
        await count_call()
        await asyncio.sleep(self.latency)
        _raise_first(self.quota_script)
        return dict(self.quotas_left)

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        await count_call()
        self.collected.append(tuple(requests))
        await asyncio.sleep(self.latency)
        _raise_first(self.collect_script)
        return ()

    async def image(self, sku: SkuName) -> str:
        await count_call()
        self.images_read.append(sku)
        await asyncio.sleep(self.latency)
        _raise_first(self.image_script)
        return self.image_id

    async def console(self, machine: ProviderMachineId) -> str:
        await count_call()
        self.consoles_asked.append(machine)
        if any(machine in request for request in self.ended):
            # As of a pod that was deleted.
            raise ProviderError(FailureClass.UNKNOWN, "NotFound", f"{machine} does not exist")
        step = self.console_script.popleft() if self.console_script else ""
        if isinstance(step, ProviderError | OutcomeUnknownError):
            raise step
        await asyncio.sleep(self.latency if isinstance(step, str) else step)
        return step if isinstance(step, str) else "too late"

    async def verify(self, proof: bytes) -> ProvenIdentity:
        step = self.verify_script.popleft() if self.verify_script else None
        if isinstance(step, ProviderError | OutcomeUnknownError):
            raise step
        if step is not None:
            await asyncio.sleep(step)
        word, _, rest = proof.decode().partition(":")
        if word == "refused":
            raise ProofRefusedError(rest, "SECRET-PROOF is not shown")
        instance, image, launch_time = rest.split(",")
        return ProvenIdentity(ProviderMachineId(instance), image, launch_time)

    async def protect(self, machine: ProviderMachineId) -> None:
        step = self.protect_script.popleft() if self.protect_script else None
        if isinstance(step, ProviderError | OutcomeUnknownError):
            raise step
        if self.on_protect is not None:
            await self.on_protect(machine)
        self.protected.append(machine)

    async def close(self) -> None:
        """Do nothing: this fake holds no connection."""

    def shut_down(self, machine: ProviderMachineId) -> None:
        """Terminate a machine, whatever the cause."""
        if machine in self.instances and not self.instances[machine].terminated:
            self.instances[machine].terminated = True
            self.on_end(machine)

    def add(self, instance: Instance) -> None:
        """Add a running machine that the controller may not know."""
        self.instances[instance.id] = instance

    @property
    def _now(self) -> Instant:
        return EPOCH + asyncio.get_running_loop().time()

    def _carry_out(self, request: str, partly: Partly | None) -> LaunchAnswer:
        order = json.loads(request)
        known = self._answers.get(order["token"])
        if known is not None:
            if known[0] != request:
                self.violations.append(f"token {order['token']} with another request")
            return known[1]
        count = order["count"] if partly is None else partly.count
        launched = tuple(self._start(order) for _ in range(count))
        why, wait = (partly.failures, partly.retry_after) if partly is not None else ((), None)
        answer = LaunchAnswer(launched, why, wait)
        self._answers[order["token"]] = (request, answer)
        return answer

    def _start(self, order: dict[str, str]) -> LaunchedMachine:
        key = order["offerings"][0]
        machine = ProviderMachineId(f"i-{self._name}-{len(self.instances) + 1}")
        instance = Instance(
            machine,
            LaunchRequestId(order["launch_request"]),
            SkuName(order["sku"]),
            key,
            f"t{self._now:.0f}",
        )
        self.add(instance)
        self.on_instance(instance)
        _, instance_type, zone, _ = key.split("/")
        return LaunchedMachine(
            machine,
            instance_type,
            zone,
            CapacityType.ON_DEMAND,
            self.image_id,
            instance.launch_time,
        )


def proof_of(instance: Instance, image: str = IMAGE, launch_time: str | None = None) -> bytes:
    """Return the proof of identity that the metadata service of the instance would give."""
    return f"signed:{instance.id},{image},{launch_time or instance.launch_time}".encode()


def _listed(instance: Instance) -> ListedMachine:
    _, instance_type, zone, _ = instance.offering.split("/")
    return ListedMachine(
        instance.id,
        instance.installation,
        instance.call,
        instance.sku,
        instance.terminated,
        instance_type,
        zone,
        CapacityType.ON_DEMAND,
        1.0,
        (("east/G", 4),),
        IMAGE,
        instance.launch_time,
        instance.reason,
        instance.failure,
        leaving=instance.leaving,
        cannot_start=instance.cannot_start,
        state="terminated" if instance.terminated else "running",
    )


def _raise_first(script: deque[ProviderError | OutcomeUnknownError | None]) -> None:
    error = script.popleft() if script else None
    if error is not None:
        raise error
