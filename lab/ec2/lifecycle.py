"""Moves instances through their states: pending, running, shutting-down, terminated; also stopping, stopped.

Boots and kills their machines.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from autoscaler.controller.ports.clock import Clock
from lab.ec2.faults import Faults
from lab.ec2.instances import Instance, Instances, InstanceState
from lab.ec2.query import timestamp
from lab.machine_host import RUNNER_VERSION, LabMachine, MachineHost

BY_USER = ("Client.UserInitiatedShutdown", "User initiated shutdown")
TAKEN_BACK = ("Server.SpotInstanceTermination", "Spot instance termination")
BY_ITSELF = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")

RUNNER_TAG = "lab:runner-version"
"""The tag of an image with its version of actions/runner."""

FILES_TAG = "lab:files-gb"
"""The tag of an image with the GiB that its files take on the disk of a machine."""

FILES_GB = 4.0
"""What they take without that tag, in GiB."""


@dataclass(slots=True)
class Delays:
    """Durations in lab seconds. Tests may change them at any time, for what begins after that.

    `listed` is how long EC2 still describes a terminated instance (about an hour).
    """

    pending: float = 5.0
    shutting_down: float = 5.0
    listed: float = 3600.0
    stopping: float = 5.0


class Lifecycle:
    """Moves instances. Each instance that starts or ends has a task."""

    def __init__(
        self, instances: Instances, host: MachineHost, clock: Clock, faults: Faults, delays: Delays
    ) -> None:
        self._instances = instances
        self._host = host
        self._clock = clock
        self._faults = faults
        self._delays = delays
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.metadata_root = ""

    def launch(self, instance: Instance) -> None:
        """Start a new instance, or let it fail to start if a fault says so."""
        self._faults.launched(instance)
        task = asyncio.create_task(self._start(instance))
        self._starting[instance.id] = task
        task.add_done_callback(lambda _: self._starting.pop(instance.id, None))

    def terminate(self, instance: Instance) -> None:
        """Terminate an instance as TerminateInstances does: it is `shutting-down` at once, terminated later.

        EC2 tries to shut the operating system down (User Guide, "How instance termination works").
        """
        if self._faults.leaks(instance):
            return
        if instance.state is InstanceState.STOPPED:
            self._terminated(instance)
            return
        if instance.state is InstanceState.STOPPING:
            self._spawn(self._terminated_after(self._stopping[instance.id], instance))
            return
        if instance.ended_at is not None:
            return
        starting = self._starting.get(instance.id)
        if starting is not None and instance.state is InstanceState.PENDING:
            starting.cancel()
        self._end(instance, BY_USER, "User initiated")
        self._spawn(self._end_and_terminate(instance, starting, self._host.shut_down))

    def stop(self, instance: Instance) -> None:
        """Stop an instance that runs, as StopInstances does: it is `stopping` at once, stopped later."""
        if instance.state is not InstanceState.RUNNING:
            return
        self._end(instance, BY_USER, "User initiated", InstanceState.STOPPING)
        starting = self._starting.get(instance.id)
        task = self._spawn(self._stopped_later(instance, starting))
        self._stopping[instance.id] = task
        task.add_done_callback(lambda _: self._stopping.pop(instance.id, None))

    def take_back(self, instance: Instance, properly: bool = True) -> None:
        """Terminate an instance as a spot interruption does: at once, in any state.

        `properly` is whether its operating system is shut down first, which EC2 tries and does not guarantee.
        """
        if instance.ended_at is None:
            starting = self._starting.get(instance.id)
            self._end(instance, TAKEN_BACK, "")
            end = self._host.shut_down if properly else self._host.kill
            self._spawn(self._end_and_terminate(instance, starting, end))

    async def powered_off(self, instance: Instance) -> None:
        """Stop or terminate an instance whose machine powered itself off, as its shutdown behavior says."""
        if self._faults.leaks(instance) or instance.ended_at is not None:
            return
        stops = instance.specification.shutdown_behavior != "terminate"
        self._end(instance, BY_ITSELF, "")
        if stops:
            self._instances.move(instance, InstanceState.STOPPED)
        else:
            self._spawn(self._terminated_later(instance))

    def listed(self, instance: Instance) -> bool:
        """Return whether EC2 lists the instance: it is visible already, and did not end too long ago."""
        now = self._clock.now()
        if instance.terminated_at is not None:
            return now < instance.terminated_at + self._delays.listed
        return instance.visible_at <= now

    def console(self, instance: Instance) -> str:
        """Return an instance's current console output, also to callers that do not ask for the latest."""
        return self._host.console(instance.id)

    async def close(self) -> None:
        """Stop every timer. Idempotent."""
        tasks = [*self._starting.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, instance: Instance) -> None:
        await self._clock.sleep(self._delays.pending)
        failure = self._faults.start_failure(instance)
        if failure is not None:
            # EC2 shows such an instance in `terminated` at once, and never in `running`.
            self._end(instance, failure, "")
            self._terminated(instance)
            return
        instance.running_at = self._clock.now()
        self._instances.move(instance, InstanceState.RUNNING)
        await self._host.boot(self._machine(instance))

    def _machine(self, instance: Instance) -> LabMachine:
        image = instance.specification.image
        files_gb = float(image.tags.get(FILES_TAG, FILES_GB))
        return LabMachine(
            instance_id=instance.id,
            instance_type=instance.instance_type,
            platform=image.platform,
            user_data=decoded(instance.specification.user_data).decode(errors="replace"),
            metadata_url=f"{self.metadata_root}/{instance.id}",
            powered_off=lambda: self.powered_off(instance),
            sku=instance.tags.get("autoscaler:sku", ""),
            runner_version=image.tags.get(RUNNER_TAG, "" if image.owner else RUNNER_VERSION),
            free_gb=max(0.0, instance.specification.disk.gb - files_gb),
        )

    def _end(
        self,
        instance: Instance,
        reason: tuple[str, str],
        transition: str,
        state: InstanceState = InstanceState.SHUTTING_DOWN,
    ) -> None:
        now = self._clock.now()
        instance.ended_at = now
        instance.reason = (reason[0], f"{reason[0]}: {reason[1]}")
        moment = timestamp(now, "").replace("T", " ").replace("Z", " GMT")
        instance.transition = f"{transition} ({moment})" if transition else ""
        self._instances.move(instance, state)

    async def _stopped_later(self, instance: Instance, starting: asyncio.Task[None] | None) -> None:
        if starting is not None:
            await asyncio.wait([starting])
        await self._host.shut_down(instance.id)
        await self._clock.sleep(self._delays.stopping)
        self._instances.move(instance, InstanceState.STOPPED)

    async def _terminated_after(self, stopping: asyncio.Task[None], instance: Instance) -> None:
        await asyncio.wait([stopping])
        self._terminated(instance)

    async def _end_and_terminate(
        self,
        instance: Instance,
        starting: asyncio.Task[None] | None,
        end: Callable[[str], Awaitable[None]],
    ) -> None:
        if starting is not None:
            # A boot under way is let finish: cancelled half-way it could leave a process behind.
            await asyncio.wait([starting])
        await end(instance.id)
        await self._terminated_later(instance)

    async def _terminated_later(self, instance: Instance) -> None:
        await self._clock.sleep(self._delays.shutting_down)
        self._terminated(instance)

    def _terminated(self, instance: Instance) -> None:
        instance.terminated_at = self._clock.now()
        self._instances.move(instance, InstanceState.TERMINATED)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


def decoded(user_data: str) -> bytes:
    """Return user data as the machine reads it. Text that is not base64 is returned unchanged."""
    try:
        return base64.b64decode(user_data, validate=True)
    except binascii.Error:
        return user_data.encode()
