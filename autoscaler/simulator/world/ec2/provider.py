"""EC2 for the controller: a client token launches once, lists lag, and each answer can fail.

As with CreateFleet, answers to launch requests contain no launch time. The next list has it.
"""

import asyncio
import itertools
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from autoscaler.controller.ports.capabilities import NoticeQueue
from autoscaler.controller.ports.provider import (
    Capabilities,
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    ProvenIdentity,
    ProviderError,
)
from autoscaler.model.catalogue import Catalogue, Offering
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
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.instances import IMAGE, Instance
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.processes import count_call, outside, send
from autoscaler.simulator.world.schedule import FaultKind

PAGE = 20
SMALL_PAGE = 2
LATENCY: Seconds = 0.5
SHOWN_AFTER_END: Seconds = 3600.0
"""Terminated instances are listed for about an hour (EC2 guide: terminate instances)."""


class SimulatedProvider:
    """Implements the Provider port for all processes of a world.

    `catalogue` has its offerings and rates. `quota` is how many units of each quota the account has.
    `on_launch` and `on_end` are called for each machine that begins and ends, whatever the cause. The world
    sets `notices`.
    """

    def __init__(
        self,
        name: ProviderName,
        catalogue: Catalogue,
        quota: Mapping[str, int],
        fault_schedule: FaultSchedule,
        invariants: Invariants,
        now: Callable[[], Instant],
    ) -> None:
        self.name = name
        self.notices: NoticeQueue | None = None
        self._catalogue = catalogue
        self.latency = LATENCY
        self.instances: dict[ProviderMachineId, Instance] = {}
        self.running: dict[ProviderMachineId, Instance] = {}
        self.listed_as_of: Instant = -math.inf
        """The moment whose machines the last complete list showed: lists may be out of date."""
        self.on_launch: Callable[[Instance], None] = lambda _: None
        self.on_end: Callable[[Instance], None] = lambda _: None
        self._offerings = {offering.key: offering for offering in _offerings(catalogue)}
        self._quota = quota
        self._fault_schedule = fault_schedule
        self._invariants = invariants
        self.installation = catalogue.installations.own
        self._now = now
        self._answers: dict[str, LaunchAnswer] = {}
        self._prepared = itertools.count(1)

    @property
    def capabilities(self) -> Capabilities:
        """The rates of the catalogue, and the notices. Prices do not change, and quotas are never stored."""
        return Capabilities(
            largest_request=self._catalogue.largest_request(self.name),
            launch_rate=self._catalogue.launch_rates.get(self.name),
            notices=self.notices,
        )

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return the catalogue's offerings of a launch option."""
        return self._catalogue.skus[sku].launch_options[option].offerings

    async def open(self) -> None:
        """Do nothing: there is nothing to read."""
        await count_call()

    def adopt(self, installation: InstallationId) -> None:
        """Tag new machines with this ID."""
        self.installation = installation

    async def prepare(self, order: LaunchOrder) -> str:
        """Return the request with the image that the SKU's image name means."""
        await count_call()
        await asyncio.sleep(self.latency)
        return json.dumps(
            {
                "launch_request": order.launch_request,
                "sku": order.sku,
                "offerings": order.offerings,
                "count": order.count,
                "token": order.token,
                "image": IMAGE,
                # As on EC2, where images and subnets change, a request that is prepared again has another text.
                "prepared": next(self._prepared),
            }
        )

    async def launch(self, request: str) -> LaunchAnswer:
        """Launch as many machines as possible. A repeated token launches no more."""
        hit = self._fault_schedule.hit
        await count_call()
        order = json.loads(request)
        known = send(lambda: self._arrived(request, order), OutcomeUnknownError)
        if hit(FaultKind.THROTTLED):
            await asyncio.sleep(self.latency)
            raise ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")
        if hit(FaultKind.LAUNCH_5XX):
            await asyncio.sleep(self.latency)
            raise OutcomeUnknownError("500 InternalError")
        answer = known or outside(lambda: self._carry_out(order))
        self._answers[order["token"]] = answer
        slow = hit(FaultKind.LAUNCH_SLOW)
        await asyncio.sleep(self.latency if slow is None else float(slow.target))
        await count_call()
        if hit(FaultKind.LAUNCH_SWALLOWED):
            raise OutcomeUnknownError("the connection broke")
        return answer

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        """Terminate machines. Unknown IDs are no error."""
        hit = self._fault_schedule.hit
        await count_call()
        if hit(FaultKind.END_REFUSED):
            raise ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")
        send(lambda: self._terminate(machines), OutcomeUnknownError)
        await asyncio.sleep(self.latency)
        await count_call()
        if hit(FaultKind.END_SWALLOWED):
            raise OutcomeUnknownError("the connection broke")
        return {}

    def _terminate(self, machines: Sequence[ProviderMachineId]) -> None:
        for machine in machines:
            instance = self.running.get(machine)
            if instance is not None:
                self._invariants.terminating(instance)
                instance.termination_requests += 1
                if (ignored := self._fault_schedule.hit(FaultKind.END_IGNORED)) is not None:
                    left = ignored.until - self._fault_schedule.time
                    instance.ignores_until = max(instance.ignores_until, self._now() + left)
                # A machine that is already shutting down keeps its reason.
                if instance.ignores_until <= self._now() and instance.stopping_at is None:
                    self.shut_down(instance, "User initiated")

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """Yield pages of machines, which may be out of date."""
        await count_call()
        eventual = self._fault_schedule.hit(FaultKind.EVENTUAL)
        then = self._now() - (eventual.target if eventual is not None else 0.0)
        shown = [
            instance
            # Newest first, unlike the answer to the launch: EC2 promises no order.
            for instance in reversed(self.instances.values())
            if instance.launched_at <= then
            and (instance.ended_at is None or instance.ended_at > then - SHOWN_AFTER_END)
        ]
        await asyncio.sleep(self.latency)
        breaks = self._fault_schedule.hit(FaultKind.LIST_BREAKS)
        gaps = self._fault_schedule.hit(FaultKind.EMPTY_PAGES) is not None
        size = SMALL_PAGE if gaps else PAGE
        for start in range(0, len(shown), size):
            yield tuple(instance.listed(then) for instance in shown[start : start + size])
            if breaks is not None:
                break
            if gaps:
                # EC2 may return a token with no result (EC2 Developer Guide, "Pagination").
                yield ()
        if breaks is not None:
            raise OutcomeUnknownError("the connection broke")
        await count_call()
        self.listed_as_of = then

    def show(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """Return these machines as they are now, if they exist."""
        found = [self.instances[machine] for machine in machines if machine in self.instances]
        return tuple(instance.listed(self._now()) for instance in found)

    async def quotas(self) -> Mapping[str, int]:
        """Return the quotas of the account."""
        await count_call()
        await asyncio.sleep(self.latency)
        return dict(self._quota)

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete nothing: launches leave nothing behind."""
        del requests
        await count_call()
        return ()

    async def image(self, sku: SkuName) -> str:
        """Return the only image."""
        del sku
        await count_call()
        await asyncio.sleep(self.latency)
        return IMAGE

    async def console(self, machine: ProviderMachineId) -> str:
        """Return the console output so far. Empty for a machine that does not exist."""
        await count_call()
        await asyncio.sleep(self.latency)
        if self._fault_schedule.hit(FaultKind.THROTTLED):
            raise ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")
        await count_call()
        instance = self.instances.get(machine)
        return instance.console if instance is not None else ""

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """Return the identity in a proof. No proof is forged in this world."""
        instance, image, launch_time = proof.decode().removeprefix("signed:").split(",")
        return ProvenIdentity(ProviderMachineId(instance), image, launch_time)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def add(self, instance: Instance) -> None:
        """Add a running machine."""
        self.instances[instance.id] = self.running[instance.id] = instance
        self.on_launch(instance)

    def shut_down(
        self, instance: Instance, reason: str, failure: FailureClass | None = None
    ) -> None:
        """End a machine."""
        if self.running.pop(instance.id, None) is not None:
            instance.ended_at = self._now()
            instance.reason, instance.failure = reason, failure
            self.on_end(instance)

    def _arrived(self, request: str, order: Mapping[str, Any]) -> LaunchAnswer | None:
        """Check a launch request. Return the answer to an earlier one with its token."""
        known = self._answers.get(order["token"])
        self._invariants.launching(request, order, 0 if known is not None else order["count"])
        return known

    def _carry_out(self, order: dict[str, str]) -> LaunchAnswer:
        count = int(order["count"])
        wanted = (count + 1) // 2 if self._fault_schedule.hit(FaultKind.PARTIAL_FLEET) else count
        launched: list[LaunchedMachine] = []
        failures: dict[str, LaunchFailure] = {}
        dry = self._fault_schedule.hit(FaultKind.NO_CAPACITY)
        refused = self._fault_schedule.hit(FaultKind.OVERRIDE_REFUSED)
        no_quota = self._fault_schedule.hit(FaultKind.NO_QUOTA) is not None
        for key in order["offerings"]:
            offering = self._offerings[key]
            if dry is not None and ord(offering.zone) - ord("a") < dry.target:
                failures[key] = _failure(
                    FailureClass.CAPACITY, "InsufficientInstanceCapacity", offering
                )
                continue
            if refused is not None and ord(offering.zone) - ord("a") < refused.target:
                failures[key] = _failure(
                    FailureClass.CONFIGURATION, "InvalidFleetConfiguration", offering
                )
                continue
            while len(launched) < wanted:
                if no_quota or self._quota_left(offering) < offering.quota_units:
                    failures[key] = _failure(FailureClass.QUOTA, "VcpuLimitExceeded", offering)
                    break
                launched.append(self._start(order, offering))
        if len(launched) < count and not failures:
            key = order["offerings"][0]
            failures[key] = _failure(
                FailureClass.CAPACITY, "UnfulfillableCapacity", self._offerings[key]
            )
        short = tuple(failures.values()) if len(launched) < count else ()
        return LaunchAnswer(tuple(launched), short)

    def _quota_left(self, offering: Offering) -> int:
        used = sum(
            i.offering.quota_units
            for i in self.running.values()
            if i.offering.quota_key == offering.quota_key
        )
        return self._quota[offering.quota_key] - used

    def _start(self, order: dict[str, str], offering: Offering) -> LaunchedMachine:
        machine = ProviderMachineId(f"i-{self.name}-{len(self.instances) + 1}")
        launch_request, sku = LaunchRequestId(order["launch_request"]), SkuName(order["sku"])
        self.add(Instance(machine, launch_request, sku, offering, self.installation, self._now()))
        return LaunchedMachine(
            machine, offering.instance_type, offering.zone, offering.capacity_type
        )


def _offerings(catalogue: Catalogue) -> list[Offering]:
    options = [option for sku in catalogue.skus.values() for option in sku.launch_options]
    return [offering for option in options for offering in option.offerings]


def _failure(failure: FailureClass, code: str, offering: Offering) -> LaunchFailure:
    return LaunchFailure(failure, code, "none now", offering.key)
