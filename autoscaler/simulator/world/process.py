"""One controller process on a world's ports, which can be started and killed.

Its parts are those of the product, as `app` wires them. Only the guards against unexpected errors are
left off, because they would hide mistakes of the simulation.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autoscaler.controller.bootstrap import BootstrapService
from autoscaler.controller.circuits import Circuits
from autoscaler.controller.consoles import Consoles
from autoscaler.controller.effects import Effects
from autoscaler.controller.executor import Executor
from autoscaler.controller.github_reader import GitHubReader
from autoscaler.controller.intake import Intake, Parse
from autoscaler.controller.journal import Journal
from autoscaler.controller.launcher import Launcher
from autoscaler.controller.notice_reader import NoticeReader
from autoscaler.controller.opening import Opening
from autoscaler.controller.operator_actions import OperatorActions
from autoscaler.controller.poller import PeriodicTask, Poller
from autoscaler.controller.ports.clock import Clock, Ids
from autoscaler.controller.ports.github import GitHub
from autoscaler.controller.ports.github_lists import GitHubLists
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.ports.reruns import Reruns
from autoscaler.controller.ports.store import SavedState, Store
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Pace, Reconciler
from autoscaler.controller.registrar import Registrar
from autoscaler.controller.registration_releaser import RegistrationReleaser
from autoscaler.controller.rerunner import Rerunner
from autoscaler.controller.syncing import Syncing
from autoscaler.controller.terminator import Terminator
from autoscaler.ledger.ledger import KEPT_FOR, Ledger
from autoscaler.ledger.state import LedgerState
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.events import ControllerStarted
from autoscaler.model.identifiers import InstallationId, ProviderName
from autoscaler.simulator.world.crash_point import CrashPoint
from autoscaler.simulator.world.virtual_time import OWNER, Tasks

T = TypeVar("T")


class ProcessGoneError(Exception):
    """The controller process that got the request has ended."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What a process stands on. `pace` is how it gathers changes, `parse` how it reads a body.

    Without `syncs` GitHub's lists are read for an operator alone, as by a controller whose calls are
    used up; `duty_clock` is for that and for re-runs.
    """

    catalogue: Catalogue
    store: Store
    github: GitHub
    providers: Mapping[ProviderName, Provider]
    reruns: Reruns
    clock: Clock
    duty_clock: Clock
    ids: Ids
    lists: GitHubLists
    syncs: bool
    telemetry: Telemetry
    parse: Parse
    pace: Pace


class ControllerProcess:
    """From start to its end, by its own failure, SIGTERM or SIGKILL.

    `crashes` are the errors of its effects; the caller's `crash_point` stands in every port.
    """

    def __init__(self, ports: Ports, crash_point: CrashPoint) -> None:
        self.crash_point = crash_point
        self.crashes: list[BaseException] = []
        self.running: asyncio.Task[None] | None = None
        self.parts: Parts | None = None
        self._ports = ports
        self._tasks = Tasks()

    @property
    def state(self) -> LedgerState:
        """Return the state of its ledger. Raises ProcessGoneError before it has one."""
        return self.ready.journal.ledger.state

    @property
    def ready(self) -> "Parts":
        """Return its parts. Raises ProcessGoneError unless it serves."""
        if self.parts is None or self.crash_point.blown.is_set():
            raise ProcessGoneError
        return self.parts

    def start(self) -> None:
        """Begin: take over what the store holds, then turn the loop."""
        self.running = self._own(self._life())

    async def serve(self, request: Coroutine[Any, Any, T]) -> T:
        """Answer a request in this process; raises ProcessGoneError when it dies before that."""
        if self.crash_point.blown.is_set() or self.running is None or self.running.done():
            request.close()
            raise ProcessGoneError
        try:
            return await self._own(request)
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if self.crash_point.blown.is_set() and asking is not None and not asking.cancelling():
                raise ProcessGoneError from None
            raise

    async def kill(self) -> None:
        """Stop everything at once, without any answer: SIGKILL."""
        self.crash_point.blown.set()
        while tasks := self._tasks.unfinished():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """SIGTERM: finish what is in flight. Raises StoreError."""
        if self.parts is not None and self.running is not None:
            self.parts.loop.stop()
            await self.running
            self.parts.desk.shut_down()
            await self.parts.loop.drain(30.0)
        await self.kill()

    async def _life(self) -> None:
        ports = self._ports
        now = ports.clock.now()
        saved = await ports.store.load(now - KEPT_FOR)
        parts = Parts(ports, saved, self._crashed)
        journal = parts.journal
        journal.ledger.restore(
            (*saved.launch_requests, *saved.machines, *saved.runners, *saved.jobs, *saved.reruns),
            saved.cooldowns,
        )
        absence = max(0.0, now - saved.heartbeat) if saved.heartbeat is not None else 0.0
        await journal.record(ControllerStarted(now, absence))
        parts.intake.resume(*saved.unapplied)
        self.parts = parts
        await parts.loop.run()

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        token = OWNER.set(self._tasks)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            OWNER.reset(token)

    def _crashed(self, error: BaseException) -> None:
        self.crashes.append(error)
        if self.parts is not None:
            self.parts.loop.stop()


class Parts:
    """The product's parts, wired to the ports."""

    def __init__(self, ports: Ports, saved: SavedState, crashed: Any) -> None:
        self._ports = ports
        github = ports.github
        self._providers = ports.providers
        self.journal = Journal(
            Ledger(self._for_sale(()).with_installations(saved.installations)),
            ports.store,
            ports.clock,
            ports.telemetry,
        )
        self._effects = Effects(crashed)
        self._registrar = Registrar(self.journal, github, ports.clock)
        self.intake = Intake(ports.store, self.journal, ports.parse)
        arrived = saved.arrived_until if saved.arrived_until is not None else ports.clock.now()
        self._adopt(saved.installations.own)
        self.operator_actions = OperatorActions(
            self.journal, ports.lists, self._providers, self._adopt
        )
        opening = Opening(ports.providers, self._list, self._sell, ports.clock)
        self._poller = Poller(
            self.journal,
            ports.store,
            github,
            self._providers,
            ports.clock,
            arrived,
            (opening.run, *self._tasks()),
        )
        self.desk = BootstrapService(
            self.journal,
            self._registrar,
            RegistrationReleaser(self.journal, github, self._registrar, self._effects),
            self._providers,
            {sku: {"disk_gb": 10} for sku in ports.catalogue.skus},
            self._poller.list_soon,
            opened=opening.opened,
        )
        self.loop = self._make_loop(github)

    def _adopt(self, installation: InstallationId) -> None:
        for provider in self._providers.values():
            provider.adopt(installation)

    async def _list(self, name: ProviderName) -> bool:
        return await self._poller.list_machines(name)

    def _sell(self, opened: Collection[ProviderName]) -> None:
        self.journal.ledger.replace_catalogue(self._for_sale(opened))

    def _tasks(self) -> list[PeriodicTask]:
        ports, journal = self._ports, self.journal
        telemetry, clock = ports.telemetry, ports.duty_clock
        notices = {name: provider.notices for name, provider in self._providers.items()}
        queues = {name: queue for name, queue in notices.items() if queue is not None}
        tasks = [
            Rerunner(journal, ports.reruns, clock).run,
            *NoticeReader(journal, queues, telemetry, ports.clock).tasks,
            *Consoles(journal, self._providers).tasks,
            Circuits(journal, self._providers, clock).run,
        ]
        if ports.syncs:
            recall = self.intake.recall
            syncing = Syncing(journal, ports.lists, ports.github, recall, telemetry, clock)
            tasks.append(syncing.run)
        return tasks

    def _make_loop(self, github: GitHub) -> Reconciler:
        ports = self._ports
        executor = Executor(
            self.journal,
            ports.ids,
            self._effects,
            Launcher(self.journal, self._providers),
            self._registrar,
            Terminator(self.journal, self._providers, ports.clock),
            GitHubReader(self.journal, github),
        )
        return Reconciler(
            self.journal,
            self.intake,
            executor,
            self._poller,
            self._effects,
            ports.telemetry,
            ports.clock,
            ports.clock,
            ports.pace,
        )

    def _for_sale(self, opened: Collection[ProviderName]) -> Catalogue:
        """Return the catalogue without the offerings of providers that were not listed yet."""
        catalogue = self._ports.catalogue
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
        return replace(catalogue, skus=skus)
