"""What a reload changes, and fleet.yaml with it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from autoscaler.app.reloading import InUse, Reloading
from autoscaler.controller.operators.reconfiguration import Reconfiguration
from autoscaler.controller.ports.operator_requests import Reloaded
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.reconciler import Reconciler
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.model.operators import OperatorName
from autoscaler.views.preview import Preview
from tests.providers.memory.fleet import TEXT

P = ParamSpec("P")
T = TypeVar("T")

INSTALLATIONS = Installations(InstallationId("0badcafe"))
NOTHING = Preview((), (), 0, (), 0, (), 1.0, 1.0)
ALICE, BOB = OperatorName("alice"), OperatorName("bob")


@dataclass
class Parts(Reconfiguration):
    """The parts of a controller that a reload changes."""

    used: Catalogue
    opened: Collection[ProviderName] = (ProviderName("east"), ProviderName("west"))
    read_again: int = 0
    history: list[tuple[OperatorName, tuple[str, ...]]] = field(default_factory=list)
    """Who changed which keys."""
    machines: Counter[ProviderName] = field(default_factory=Counter)
    """The machines that exist, by provider."""
    previewed: list[Catalogue] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: reads and previews wait."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    @property
    def catalogue(self) -> Catalogue:
        return self.used

    async def read_providers_again(self) -> None:
        await self.answers.wait()
        self.read_again += 1

    async def change_catalogue(
        self, changed: Catalogue, by: OperatorName, keys: Sequence[str]
    ) -> int:
        self.used = changed
        self.history.append((by, tuple(keys)))
        self.changed.set()
        return 3

    def machines_at(self, provider: ProviderName | None) -> int:
        return self.machines.total() if provider is None else self.machines[provider]

    async def preview(self, changed: Catalogue) -> Preview:
        self.previewed.append(changed)
        self.asked.set()
        await self.answers.wait()
        return NOTHING


@dataclass
class Loop(Reconciler):
    """What stops the controller."""

    stopping: bool = False

    def stop(self) -> None:
        self.stopping = True


@dataclass
class Served:
    """A configuration in use, and what reloads it."""

    file: Path
    in_use: InUse
    parts: Parts
    reloading: Reloading
    skus: set[SkuName]
    providers: dict[ProviderName, Provider]
    loop: Loop

    def write(self, *changes: tuple[str, str]) -> bytes:
        """Write fleet.yaml with these changes, and return its text."""
        text = TEXT
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        self.file.write_text(text)
        return text.encode()


class Steps(ThreadPoolExecutor):
    """Runs what a reload leaves to a thread, and calls a function in the loop before the reload goes on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
        super().__init__(max_workers=1)
        self._loop, self._then = loop, then

    def submit(self, step: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """Begin a step (see `Executor.submit`)."""

        def run() -> T:
            try:
                return step(*args, **named)
            finally:
                self._loop.call_soon_threadsafe(self._then)

        return super().submit(run)


class Overtaken(ThreadPoolExecutor):
    """Runs what reloads leave to a thread. Another reload starts after the first step of the first one.

    If the other one has a step before the first one has ended, the first one waits until the other has ended.
    """

    def __init__(self, start: Callable[[], asyncio.Task[Reloaded]]) -> None:
        """`start` starts the other reload."""
        super().__init__(max_workers=1)
        self._start = start
        self._first: asyncio.Task[object] | None = None
        self._late: set[asyncio.Task[None]] = set()
        self._overtakes = False
        self.other: asyncio.Task[Reloaded] | None = None

    def submit(self, step: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """Begin a step (see `Executor.submit`)."""
        task = asyncio.current_task()
        if self._first is None:
            self._first = task
            return super().submit(step, *args, **named)
        if task is not self._first:
            self._overtakes = True
            return super().submit(step, *args, **named)
        if self.other is None:
            self.other = self._start()
        found = Future[T]()
        late = asyncio.create_task(self._submit_late(found, partial(step, *args, **named)))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        return found

    async def _submit_late(self, found: Future[T], step: Callable[[], T]) -> None:
        assert self.other is not None
        for _ in range(50):
            await asyncio.sleep(0)
        if self._overtakes:
            await asyncio.wait([self.other])
        try:
            found.set_result(await asyncio.wrap_future(super().submit(step)))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            found.set_exception(error)


def between_steps(then: Callable[[], None]) -> None:
    """Call a function between the steps of the next reload."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Steps(loop, then))
