"""Composes a controller from its ports. No other code creates the controller's parts.

`autoscaler serve`, the simulated worlds and the controller's tests each create a `Controller`. A part that
is added here is in all of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from autoscaler.controller.effects import Effects, PeriodicTask
from autoscaler.controller.executor import Executor
from autoscaler.controller.github.registrar import Registrar
from autoscaler.controller.github.releases import RegistrationReleaser
from autoscaler.controller.github.reruns import Rerunner
from autoscaler.controller.github.runner_groups import GroupWatch
from autoscaler.controller.github.runner_versions import RunnerVersionWatch
from autoscaler.controller.github.single_reads import GitHubReader
from autoscaler.controller.github.synchronizer import synchronize
from autoscaler.controller.intake.deliveries import Intake, Parse
from autoscaler.controller.intake.inbox import read_repeatedly
from autoscaler.controller.intake.redelivery import Redelivery
from autoscaler.controller.journal import Journal
from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.machines.circuits import CircuitWatcher
from autoscaler.controller.machines.console import ConsoleReader
from autoscaler.controller.machines.launcher import Launcher
from autoscaler.controller.machines.listing import MachineLists
from autoscaler.controller.machines.notices import NoticeReader
from autoscaler.controller.machines.opening import ProviderOpener
from autoscaler.controller.machines.terminator import Terminator
from autoscaler.controller.money.foreign_usage import KeptForeignUsage
from autoscaler.controller.money.price_refresh import PriceRefresh
from autoscaler.controller.money.quotas import KeptQuotas
from autoscaler.controller.operators.actions import OperatorActions
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.operators.holds import OperatorHoldActions
from autoscaler.controller.operators.recent_past import RecentPast
from autoscaler.controller.operators.reconfiguration import Reconfiguration
from autoscaler.controller.ports.bootstrap import HealthChecks
from autoscaler.controller.ports.clock import Clock, Ids
from autoscaler.controller.ports.github import GitHub, Reruns
from autoscaler.controller.ports.github_lists import GitHubLists
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.ports.replicas import SharedStore
from autoscaler.controller.ports.store import SavedState, Store, StoreError
from autoscaler.controller.ports.telemetry import Telemetry, TraceTelemetry
from autoscaler.controller.reconciler import Pace, Reconciler, failure_of
from autoscaler.controller.replicas.leading import end_with_the_lease, renew_repeatedly
from autoscaler.controller.reporting.fault_history import FaultHistory
from autoscaler.controller.reporting.fleet_counts import report_offerings_on_hold
from autoscaler.controller.reporting.history_metrics import report
from autoscaler.controller.reporting.traces import WaitTracer
from autoscaler.controller.reporting.unmatched import UnmatchedJobReporter
from autoscaler.controller.reporting.usage import RunMeter, UsageMeter
from autoscaler.controller.retention import prune_repeatedly
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.records.state import Refuse, raise_unlisted
from autoscaler.model.catalogue import CapacityType, Catalogue
from autoscaler.model.events import ControllerStarted
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, WaitObjective
from autoscaler.views.cost import Spent

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything outside the controller.

    `pacing` is a clock of real time, for the pauses of the control loop. `background` is the clock of
    tasks that may run late: the simulator slows it down, because they look every second for hours.
    `observed` returns the faults of the fleet that only the metrics show, `spent` what was paid so far.
    A reload replaces entries of `providers`.
    """

    clock: Clock
    pacing: Clock
    background: Clock
    ids: Ids
    telemetry: Telemetry
    store: Store
    github: GitHub
    lists: GitHubLists
    reruns: Reruns
    providers: Mapping[ProviderName, Provider]
    traces: TraceTelemetry | None = None
    """Where the traces of jobs go; None if no trace is made."""
    observed: Callable[[], Sequence[Fault]] = tuple
    spent: Callable[[], Spent] = dict
    shared: SharedStore | None = None
    """The same as `store` if several replicas share it; this one leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the configuration decides.

    `catalogue` returns the catalogue with the offerings of these open providers. `parse` reads the body of
    a webhook delivery.
    `refuse` gets every change of state that is in no table. By default it is raised.
    `process_tasks` run beside the controller's own tasks, until they return or are cancelled.
    """

    catalogue: Callable[[Installations, Collection[ProviderName]], Catalogue]
    health_checks: Mapping[SkuName, HealthChecks]
    parse: Parse
    pace: Pace
    refuse: Refuse = raise_unlisted
    process_tasks: Sequence[PeriodicTask] = ()
    wait_objectives: tuple[WaitObjective, ...] = DEFAULT_OBJECTIVES


class Controller:
    """All parts of a controller. `resume` it once, then run its `reconciler`.

    `crashes` are the errors of effects, each of which stops the reconciler.
    """

    def __init__(self, ports: Ports, settings: Settings, installations: Installations) -> None:
        """`installations` are the store's."""
        self._ports = ports
        self._settings = settings
        self._opened: frozenset[ProviderName] = frozenset()
        self.crashes: list[BaseException] = []
        clock, telemetry, providers = ports.clock, ports.telemetry, ports.providers
        self.journal = journal = Journal(
            Ledger(settings.catalogue(installations, ()), settings.refuse),
            ports.store,
            clock,
            telemetry,
        )
        journal.on_history(partial(report, journal.ledger.state, telemetry))
        UnmatchedJobReporter(journal, telemetry)
        self.meters = UsageMeter(journal, telemetry), RunMeter(journal, telemetry)
        if ports.traces is not None:
            WaitTracer(journal, ports.traces)
        self.recent_past = RecentPast(journal, settings.wait_objectives)
        self.effects = Effects(self._crashed)
        self.intake = Intake(ports.store, journal, settings.parse, telemetry)
        self.operator_actions = OperatorActions(journal, ports.lists, providers, self._adopt)
        self.operator_holds = OperatorHoldActions(journal, providers)
        self.registrar = Registrar(journal, ports.github, clock)
        self.releaser = RegistrationReleaser(journal, ports.github, self.registrar, self.effects)
        self.github_reader = GitHubReader(journal, ports.github)
        self.launcher = Launcher(journal, providers, telemetry, clock)
        self.console_reader = ConsoleReader(journal, providers, self.effects)
        self.terminator = Terminator(journal, providers, self.console_reader, ports.pacing)
        self._tasks = self._make_tasks()
        self.bootstrap = BootstrapService(
            journal,
            self.registrar,
            self.releaser,
            providers,
            settings.health_checks,
            self.machine_lists.list_now,
            self.provider_opener.opened,
        )
        self.executor = Executor(
            journal,
            ports.ids,
            self.effects,
            self.launcher,
            self.registrar,
            self.terminator,
            self.github_reader,
        )
        self.reconciler = Reconciler(
            journal,
            self.intake,
            self.executor,
            self.run_tasks,
            self.effects,
            telemetry,
            clock,
            ports.pacing,
            settings.pace,
        )
        self.reconfiguration = Reconfiguration(
            journal, lambda: self._opened, self._read_again, self._use_offerings
        )
        self.queries = FleetQueries(
            journal,
            ports.store,
            providers,
            lambda: self.reconciler.plan,
            self.recent_past,
            self.fault_history,
            ports.observed,
            ports.spent,
            self._image_name,
        )

    def _make_tasks(self) -> list[PeriodicTask]:
        """Create each part that has tasks of its own. Return the tasks, which run beside the control loop."""
        ports, journal = self._ports, self.journal
        clock, background, telemetry = ports.clock, ports.background, ports.telemetry
        providers, store = ports.providers, ports.store
        notices = {
            name: queue
            for name, one in providers.items()
            if (queue := one.capabilities.notices) is not None
        }
        self.price_refresh = PriceRefresh(providers, store, self._use_new_prices, telemetry, clock)
        self.quotas = KeptQuotas(journal, providers, store, telemetry, clock)
        self.foreign_usage = KeptForeignUsage(journal, providers, store)
        self.machine_lists = MachineLists(journal, providers, clock, self.foreign_usage.save)
        self.redelivery = Redelivery(ports.github, ports.store, clock)
        self.provider_opener = ProviderOpener(
            providers, self._open_and_list, self._use_offerings, clock
        )
        self.rerunner = Rerunner(journal, ports.reruns, background)
        self.notice_reader = NoticeReader(journal, notices, telemetry, clock)
        self.circuit_watcher = CircuitWatcher(journal, providers, background)
        self.synchronize_github = partial(
            synchronize,
            journal,
            ports.lists,
            ports.github,
            self.intake.load_pruned_job,
            telemetry,
            background,
        )
        self.fault_history = FaultHistory(
            journal, store, lambda: self.queries.status().faults, clock
        )
        self.group_watch = GroupWatch(journal, ports.github, ports.lists, telemetry, background)
        self.version_watch = RunnerVersionWatch(journal, ports.lists, telemetry, background)
        return [
            *self.machine_lists.tasks,
            *self.quotas.tasks,
            *self.launcher.tasks,
            self.redelivery.run,
            self.redelivery.record_heartbeats,
            partial(prune_repeatedly, ports.store, clock),
            self.provider_opener.run,
            self.rerunner.run,
            *self.notice_reader.tasks,
            self.circuit_watcher.run,
            self.synchronize_github,
            partial(self.provider_opener.read_daily, self._read_again),
            self.price_refresh.run,
            self.group_watch.run,
            self.version_watch.run,
            self.fault_history.run,
            partial(report_offerings_on_hold, journal, telemetry, background),
            *self._tasks_of_leader(),
            *self._settings.process_tasks,
        ]

    def _tasks_of_leader(self) -> list[PeriodicTask]:
        shared, pacing = self._ports.shared, self._ports.pacing
        if shared is None:
            return []
        return [
            partial(renew_repeatedly, shared, pacing),
            partial(end_with_the_lease, shared, pacing),
            partial(read_repeatedly, shared, self.intake, pacing),
        ]

    async def run_tasks(self) -> None:
        """Run all tasks beside the control loop until cancelled. The first error, a StoreError, ends all."""
        async with asyncio.TaskGroup() as group:
            for task in self._tasks:
                group.create_task(task())

    async def resume(self, saved: SavedState) -> None:
        """Continue from the records of the earlier process. Raises StoreError."""
        self.journal.ledger.restore(
            (*saved.launch_requests, *saved.machines, *saved.runners, *saved.jobs, *saved.reruns),
            saved.cooldowns,
        )
        for meter in self.meters:
            meter.resume()
        self.recent_past.resume()
        await self.fault_history.resume()
        now = self.journal.now  # the seconds that many records took are downtime, too
        absence = max(0.0, now - saved.heartbeat) if saved.heartbeat is not None else 0.0
        await self.journal.record(ControllerStarted(now, absence))
        self.intake.resume(*saved.unapplied)
        self.redelivery.resume(saved.arrived_until)
        await self.quotas.load()
        await self.foreign_usage.load()
        left = Counter(m.provider for m in saved.machines if m.occupies)
        for name in set(left) - set(self._ports.providers):
            # The controller can neither list nor terminate them, so they count in the limits.
            _log.error("provider_not_configured", provider=name, machines_left=left[name])

    def _image_name(self, provider: ProviderName, image: str) -> str:
        known = self._ports.providers.get(provider)
        named = known.capabilities.image_name if known is not None else None
        return named(image) if named is not None else ""

    def _adopt(self, installation: InstallationId) -> None:
        for provider in self._ports.providers.values():
            provider.adopt(installation)

    def _crashed(self, error: BaseException) -> None:
        # A store that fails, such as after a takeover, does so for every task. The process logs it once.
        if not isinstance(error, StoreError):
            _log.error("background_task_failed", error=failure_of(error), exc_info=error)
        self.crashes.append(error)
        self.reconciler.stop()

    async def _open_and_list(self, name: ProviderName) -> bool:
        try:
            await self._open(name)
        except (ProviderError, OutcomeUnknownError) as error:
            _log.error("provider_not_opened", provider=name, error=str(error), hint=error.hint)
            return False
        await self.price_refresh.wait_for_first(name)
        return await self.machine_lists.list_machines(name)

    async def _read_again(self, name: ProviderName) -> None:
        try:
            await self._open(name)
        except (ProviderError, OutcomeUnknownError) as error:  # the values read last stay in use
            _log.warning("provider_not_read_again", provider=name, error=str(error))

    async def _open(self, name: ProviderName) -> None:
        """Open a provider. If a reload replaces it meanwhile, the new one is opened, too.

        Raises ProviderError, OutcomeUnknownError.
        """
        opened: Provider | None = None
        while opened is not self._ports.providers[name]:
            opened = self._ports.providers[name]
            await opened.open()

    def _use_offerings(self, opened: Collection[ProviderName]) -> None:
        """Put the offerings of these providers into the catalogue."""
        self._opened = frozenset(opened)
        ledger = self.journal.ledger
        installations = ledger.state.catalogue.installations
        ledger.replace_catalogue(self._settings.catalogue(installations, self._opened))

    def _use_new_prices(self, kind: CapacityType) -> None:
        """Use new spot prices for costs, and new on-demand prices in the catalogue."""
        if kind is CapacityType.SPOT:
            known = {
                name: reader.known_prices(kind)
                for name, reader in self.price_refresh.readers.items()
            }
            self.journal.ledger.use_spot_prices(known)
        elif self._opened:
            self._use_offerings(self._opened)
