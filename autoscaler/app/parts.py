"""Creates the parts of a controller, resumes and stops them."""

import asyncio
import hashlib
import signal
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from importlib.metadata import version

import structlog

from autoscaler import config
from autoscaler.app.agent_file import build_agent
from autoscaler.app.endpoints import admin_endpoints, webhook_endpoint
from autoscaler.app.host import file_limit, keep_agent_beside
from autoscaler.app.pricing import make_pricing
from autoscaler.app.translation import (
    catalogue,
    github_settings,
    health_check_parameters,
    label_values,
    server_settings,
)
from autoscaler.app.watching import World, make_poller
from autoscaler.controller.bootstrap import BootstrapService
from autoscaler.controller.effects import Effects
from autoscaler.controller.executor import Executor
from autoscaler.controller.github_reader import GitHubReader
from autoscaler.controller.guarded_github import GuardedGitHub
from autoscaler.controller.guarded_providers import GuardedProvider
from autoscaler.controller.intake import Intake
from autoscaler.controller.journal import Journal, log_refused_transition
from autoscaler.controller.launcher import Launcher
from autoscaler.controller.opening import Opening
from autoscaler.controller.ports.provider import (
    OutcomeUnknownError,
    ProviderContext,
    ProviderError,
    ProviderFactory,
)
from autoscaler.controller.ports.store import SavedState
from autoscaler.controller.quotas import KeptQuotas
from autoscaler.controller.reconciler import Pace, Reconciler, failure_of
from autoscaler.controller.registrar import Registrar
from autoscaler.controller.registration_releaser import RegistrationReleaser
from autoscaler.controller.system import RandomIds, SystemClock
from autoscaler.controller.terminator import Terminator
from autoscaler.controller.unmatched import UnmatchedJobs
from autoscaler.github.client import GitHubClient
from autoscaler.github.webhook import parse_workflow_job
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.events import ControllerStarted
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.server.bootstrap import BootstrapEndpoint
from autoscaler.server.health import HealthEndpoint
from autoscaler.server.serving import Endpoint, Serving
from autoscaler.store.opening import OpenedStore

HUNG_AFTER: Seconds = 60.0
"""After this time (real time) without a pass of the control loop, /healthz fails."""

FINISH_WITHIN: Seconds = 30.0
"""How long requests in flight may take after SIGTERM (real time)."""

_log = structlog.get_logger(__name__)


class Parts:
    """All parts of a running controller."""

    def __init__(
        self,
        configuration: config.Configuration,
        clock: SystemClock,
        store: OpenedStore,
        saved: SavedState,
        factories: Mapping[ProviderName, ProviderFactory],
    ) -> None:
        self._configuration = configuration
        self._clock = clock
        self._pacing = SystemClock()
        self._crash: BaseException | None = None
        labels = label_values(configuration.settings)
        self._telemetry = PrometheusTelemetry(*labels, version("gpu-runner-autoscaler"))
        agent = build_agent()
        agent_sha256 = hashlib.sha256(agent).hexdigest()
        self._client = GitHubClient(
            github_settings(configuration), clock, self._telemetry, token_clock=self._pacing
        )
        self.github = GuardedGitHub(self._client)
        context = ProviderContext(saved.installations, agent_sha256, self._telemetry, clock)
        self.providers = {
            name: GuardedProvider(factory.make(context)) for name, factory in factories.items()
        }
        ledger = Ledger(
            catalogue(configuration, saved.installations, (), self.providers),
            log_refused_transition,
        )
        self._journal = Journal(ledger, store, clock, self._telemetry)
        UnmatchedJobs(self._journal, self._telemetry)
        self._effects = Effects(self._crashed)
        self._registrar = Registrar(self._journal, self.github, clock)
        self._intake = Intake(store, self._journal, parse_workflow_job)
        arrived_until = saved.arrived_until if saved.arrived_until is not None else clock.now()
        world = World(store, self._client, self.github, self.providers, self._telemetry, clock)
        self._sold: frozenset[ProviderName] = frozenset()
        self._pricing = make_pricing(
            ledger, self.providers, store, self._sell_again, self._telemetry, clock
        )
        limits = {name: provider.limits for name, provider in self.providers.items()}
        kept = {name: one for name, one in limits.items() if one is not None}
        self._quotas = KeptQuotas(kept, store, self._telemetry, clock)
        self._opening = Opening(self.providers, self._open_and_list, self._sell, clock)
        self._poller = make_poller(
            self._journal,
            self._intake,
            world,
            arrived_until,
            self._quotas,
            (
                self._opening.run,
                partial(self._opening.read_daily, self._read_again),
                self._pricing.run,
            ),
        )
        self._bootstrap = self._make_bootstrap()
        self._reconciler = self._make_reconciler()
        self.serving = self._make_serving(agent)

    async def _open_and_list(self, name: ProviderName) -> bool:
        provider = self.providers[name]
        try:
            await provider.open()
        except (ProviderError, OutcomeUnknownError) as error:
            hint = provider.hint(error)
            _log.error("provider_not_opened", provider=name, error=str(error), hint=hint)
            return False
        await self._pricing.first_known(name)
        return await self._poller.list_machines(name)

    async def _read_again(self, name: ProviderName) -> None:
        try:
            await self.providers[name].open()
        except (ProviderError, OutcomeUnknownError) as error:  # the values read last stay in use
            _log.warning("provider_not_read_again", provider=name, error=str(error))

    def _sell(self, opened: Collection[ProviderName]) -> None:
        installations = self._journal.ledger.state.catalogue.installations
        self._sold = frozenset(opened)
        self._journal.ledger.replace_catalogue(
            catalogue(self._configuration, installations, self._sold, self.providers)
        )

    def _sell_again(self) -> None:
        """Update the catalogue with new prices."""
        if self._sold:
            self._sell(self._sold)

    async def resume(self, saved: SavedState) -> None:
        """Continue from the records of the earlier process. Raises StoreError."""
        ledger, now = self._journal.ledger, self._clock.now()
        ledger.restore(
            (*saved.launch_requests, *saved.machines, *saved.runners, *saved.jobs, *saved.reruns),
            saved.cooldowns,
        )
        absence = max(0.0, now - saved.heartbeat) if saved.heartbeat is not None else 0.0
        await self._journal.record(ControllerStarted(now, absence))
        self._intake.resume(*saved.unapplied)
        await self._quotas.load()
        left = Counter(m.provider for m in saved.machines if m.occupies)
        for name in set(left) - set(self.providers):
            # The controller can neither list nor terminate them, so they count in the limits.
            _log.error("provider_not_configured", provider=name, machines_left=left[name])

    async def run(self) -> None:
        """Run the control loop until SIGTERM, SIGINT or a failure, which is raised."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._reconciler.stop)
        await self._reconciler.run()
        if self._crash is not None:
            raise BaseExceptionGroup("an effect failed", [self._crash])

    async def finish(self) -> None:
        """Finish requests in flight, those of machines first, and store the results."""
        _log.info("finishing", in_flight=len(self._effects))
        self._bootstrap.shut_down()
        await self.serving.stop()
        await self._reconciler.drain(FINISH_WITHIN)

    def _crashed(self, error: BaseException) -> None:
        _log.error("effect_failed", error=failure_of(error), exc_info=error)
        self._crash = self._crash or error
        self._reconciler.stop()

    def _make_bootstrap(self) -> BootstrapService:
        return BootstrapService(
            self._journal,
            self._registrar,
            RegistrationReleaser(self._journal, self.github, self._registrar, self._effects),
            self.providers,
            health_check_parameters(self._configuration),
            self._poller.list_soon,
            opened=self._opening.opened,
        )

    def _make_reconciler(self) -> Reconciler:
        executor = Executor(
            self._journal,
            RandomIds(),
            self._effects,
            Launcher(self._journal, self.providers),
            self._registrar,
            Terminator(self._journal, self.providers, self._pacing),
            GitHubReader(self._journal, self.github),
        )
        return Reconciler(
            self._journal,
            self._intake,
            executor,
            self._poller,
            self._effects,
            self._telemetry,
            self._clock,
            self._pacing,
            Pace(),
        )

    def _make_serving(self, agent: bytes) -> Serving:
        webhook = webhook_endpoint(self._configuration, self._intake, self._clock, self._telemetry)
        earlier = keep_agent_beside(self._configuration.sqlite_file(), agent)
        tokens = [one.get_secret_value() for one in config.read_metrics_tokens(self._configuration)]
        others: list[Endpoint] = [
            BootstrapEndpoint(self._bootstrap, agent, self._telemetry, earlier=earlier),
            HealthEndpoint(self._unhealthy, self._unready, self._metrics, tokens),
            *admin_endpoints(self._configuration, self._journal, self._client, self.providers),
        ]
        settings = server_settings(self._configuration)
        allowed = settings.within(file_limit())
        if allowed != settings:
            most = allowed.max_connections
            _log.warning("connections_limited", files=file_limit(), connections=most)
        return Serving(allowed, webhook, others)

    def _unhealthy(self) -> list[str]:
        turned_at = self._reconciler.turned_at
        if turned_at is None or self._pacing.now() - turned_at < HUNG_AFTER:
            return []
        return [f"the control loop has made no pass for {HUNG_AFTER:g} s"]

    def _unready(self) -> list[str]:
        reasons = [f"provider {n} could not be opened and listed" for n in self._opening.left]
        if self._reconciler.turned_at is None:
            reasons.append("the control loop has made no pass yet")
        if not self._poller.github_answered:
            reasons.append("GitHub has not answered yet")
        return sorted(reasons)

    def _metrics(self) -> tuple[bytes, str]:
        return self._telemetry.render(), self._telemetry.content_type
