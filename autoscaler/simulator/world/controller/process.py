"""One controller process on a world's ports, to be started and killed.

The controller is the product's own, unmodified. Its ports have no guards against unlisted errors, which
would hide a mistake of the world.
"""

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from autoscaler.controller.composition import Controller, Ports, Settings
from autoscaler.controller.intake.deliveries import Parse
from autoscaler.controller.ports.bootstrap import HealthChecks
from autoscaler.controller.reconciler import Pace
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import Installations, ProviderName, Seconds
from autoscaler.simulator.world.processes import OWNER, Process, Tasks

T = TypeVar("T")


class ProcessGoneError(Exception):
    """The controller process that got the request has ended."""


def settings(catalogue: Catalogue, parse: Parse, pace: Pace) -> Settings:
    """Return a controller's settings: the offerings of `catalogue` are for sale once listed."""

    def for_sale(installations: Installations, opened: Collection[ProviderName]) -> Catalogue:
        skus = {
            name: replace(
                sku,
                launch_options=tuple(
                    option if option.provider in opened else replace(option, offerings=())
                    for option in sku.launch_options
                ),
            )
            for name, sku in catalogue.skus.items()
        }
        return replace(catalogue, skus=skus).with_installations(installations)

    health_checks = dict.fromkeys(catalogue.skus, HealthChecks({"disk_gb": 10}))
    return Settings(catalogue=for_sale, health_checks=health_checks, parse=parse, pace=pace)


async def answered(request: asyncio.Task[T], within: Seconds) -> T:
    """Return a process's answer. Without one in time the request goes on. Raises ProcessGoneError."""
    request.add_done_callback(_forget)
    done, _ = await asyncio.wait({request}, timeout=within)
    if not done or request.cancelled():
        raise ProcessGoneError
    return request.result()


def _forget(request: asyncio.Task[Any]) -> None:
    """Retrieve the error of a request, whose client may have left."""
    if not request.cancelled():
        request.exception()


class ControllerProcess:
    """One process, from its start to its end by a failure, SIGTERM or SIGKILL."""

    def __init__(self, ports: Ports, settings: Settings, process: Process) -> None:
        self.crash_point = process.crash_point
        self.running: asyncio.Task[None] | None = None
        self.controller: Controller | None = None
        self.answers_within: Seconds | None = None
        """How long a client waits for an answer. None: for ever."""
        self._ended = False
        self._ports = ports
        self._settings = settings
        self._tasks = Tasks(process)

    @property
    def gone(self) -> bool:
        """Return whether it has ended, so that no request reaches it."""
        return self._ended or self.crash_point.reached.is_set()

    @property
    def crashes(self) -> list[BaseException]:
        """The errors with which its effects failed."""
        return [] if self.controller is None else self.controller.crashes

    @property
    def state(self) -> LedgerState:
        """Return the state of its ledger. Raises ProcessGoneError before it has one."""
        return self.ready.journal.ledger.state

    @property
    def ready(self) -> Controller:
        """Return the controller. Raises ProcessGoneError before it has loaded the store, and after a crash."""
        if self.controller is None or self.gone:
            raise ProcessGoneError
        return self.controller

    def start(self) -> None:
        """Load the store, then run the control loop."""
        self.running = self._own(self._life())

    async def serve(self, request: Coroutine[Any, Any, T]) -> T:
        """Answer a request in this process. Raises ProcessGoneError if the process ends before the answer."""
        if self.gone or self.running is None or self.running.done():
            request.close()
            raise ProcessGoneError
        if self.answers_within is not None:
            return await answered(self._own(request), self.answers_within)
        try:
            return await self._own(request)
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if self.crash_point.reached.is_set() and asking is not None and not asking.cancelling():
                raise ProcessGoneError from None
            raise

    async def kill(self) -> None:
        """Stop everything at once, without any answer: SIGKILL."""
        self.crash_point.reached.set()
        await self.end()

    async def finish(self, patience: Seconds) -> None:
        """Let requests in flight end for a while, and end: the process goes on. Raises StoreError."""
        try:
            if self.controller is not None:
                self.controller.bootstrap.shut_down()
                await self.controller.reconciler.drain(patience)
        finally:
            await self.end()

    async def end(self) -> None:
        """Cancel all tasks of the controller."""
        self._ended = True
        while tasks := self._tasks.unfinished():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Stop as on SIGTERM: finish the requests in flight. Raises StoreError."""
        if self.controller is not None and self.running is not None:
            self.controller.reconciler.stop()
            await self.running
            self.controller.bootstrap.shut_down()
            await self.controller.reconciler.drain(30.0)
        await self.kill()

    async def _life(self) -> None:
        saved = await self._ports.store.load(self._ports.clock.now() - KEPT_FOR)
        for provider in self._ports.providers.values():
            provider.adopt(saved.installations.own)
        controller = Controller(self._ports, self._settings, saved.installations)
        await controller.resume(saved)
        self.controller = controller
        await controller.reconciler.run()

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        token = OWNER.set(self._tasks)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            OWNER.reset(token)
