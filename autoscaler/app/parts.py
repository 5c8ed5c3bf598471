"""Creates the parts of a controller, and stops them."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from autoscaler import config
from autoscaler.app.agent_file import own_agent
from autoscaler.app.endpoints import (
    console_endpoint,
    metrics_tokens,
    new_telemetry,
    token_file,
    webhook_endpoint,
)
from autoscaler.app.event_loop import keep_out_of_collections, report_lag
from autoscaler.app.process import (
    file_limit,
    keep_agent_beside,
    report_store_size,
)
from autoscaler.app.reloading import InUse, Reloading
from autoscaler.app.translation import (
    catalogue,
    github_settings,
    health_check_parameters,
    server_settings,
)
from autoscaler.controller.composition import Controller, Ports, Settings
from autoscaler.controller.journal import log_refused_transition
from autoscaler.controller.ports.provider import Provider, ProviderContext, ProviderFactory
from autoscaler.controller.ports.replicas import Lease, SharedStore
from autoscaler.controller.ports.store import SavedState, Store, StoreError
from autoscaler.controller.ports.telemetry import TraceTelemetry
from autoscaler.controller.reconciler import Pace, failure_of
from autoscaler.controller.replicas.leading import RELEASE_WITHIN, is_of_store
from autoscaler.controller.system import RandomIds, SystemClock
from autoscaler.github.client import GitHubClient
from autoscaler.github.webhook import parse_workflow_job
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES
from autoscaler.providers.registry import provider_kinds
from autoscaler.server.health import HealthEndpoint
from autoscaler.server.listening.listener import KeptSockets
from autoscaler.server.listening.serving import Endpoint, Serving
from autoscaler.server.machines.bootstrap import BootstrapEndpoint
from autoscaler.server.operators.admin import AdminEndpoint
from autoscaler.server.tokens import WrongTokens

HUNG_AFTER: Seconds = 60.0
"""After this time (real time) without a pass of the control loop, /healthz fails."""

FINISH_WITHIN: Seconds = 30.0
"""How long requests in flight may take after SIGTERM (real time), in the one process of a store."""

_log = structlog.get_logger(__name__)


class UnusableProviderError(Exception):
    """A provider cannot be created from its configuration."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An open store, and what it gave.

    If several replicas share it, `led` is the store again with the lease of this process, and `earlier_agents`
    are the agents of other versions.
    """

    store: Store
    saved: SavedState
    led: tuple[SharedStore, Lease] | None = None
    earlier_agents: tuple[bytes, ...] = ()


class Parts:
    """The controller on its real ports, and the servers in front of it."""

    def __init__(
        self,
        configuration: config.Configuration,
        clock: SystemClock,
        opened: Opened,
        factories: Mapping[ProviderName, ProviderFactory],
        registered: tuple[str, ...],
        traces: TraceTelemetry | None,
        kept: KeptSockets,
    ) -> None:
        """`registered` are the lines of the registry of providers.

        `kept` has the listening sockets, if the controller starts again within its process.
        """
        saved, led = opened.saved, opened.led
        kinds = provider_kinds(registered)
        self.in_use = InUse(configuration, health_check_parameters(configuration, kinds))
        self._led = led
        self._leadership_ended = False
        self._clock = clock
        self._pacing = SystemClock()
        self._telemetry = new_telemetry(configuration, clock)
        self._telemetry.replica(leads=True, epoch=0 if led is None else led[1].epoch)
        agent = own_agent()
        agent_sha256 = hashlib.sha256(agent).hexdigest()
        self._traces = traces
        self.github = GitHubClient(
            github_settings(configuration),
            clock,
            self._telemetry,
            token_clock=self._pacing,
            wall=self._pacing.wall,
            leads=opened.store.leads_for,
        )
        context = ProviderContext(
            saved.installations, agent_sha256, self._telemetry, clock, opened.store.leads_for
        )
        self.providers = {
            name: _made(name, factory, context) for name, factory in factories.items()
        }
        self.controller = Controller(
            self._ports(opened.store), self._settings(), saved.installations
        )
        self.reloading = Reloading(
            self.in_use,
            self.providers,
            context,
            self.controller.reconfiguration,
            self._telemetry.use_skus,
            self.controller.reconciler,
            registered,
        )
        self.serving = self._make_serving(agent, kept, opened.earlier_agents)

    def _ports(self, store: Store) -> Ports:
        return Ports(
            clock=self._clock,
            pacing=self._pacing,
            background=self._clock,
            ids=RandomIds(),
            telemetry=self._telemetry,
            store=store,
            github=self.github,
            lists=self.github.lists,
            reruns=self.github.reruns,
            providers=self.providers,
            traces=self._traces,
            observed=self._telemetry.faults,
            spent=self._telemetry.spent,
            shared=None if self._led is None else self._led[0],
        )

    def _settings(self) -> Settings:
        file = self.in_use.configuration.sqlite_file()
        sizes = [] if file is None else [partial(report_store_size, file, self._telemetry)]
        return Settings(
            catalogue=lambda installations, opened: catalogue(
                self.in_use.configuration, installations, opened, self.providers
            ),
            health_checks=self.in_use.health_checks,
            parse=parse_workflow_job,
            wait_objectives=self.in_use.configuration.settings.metrics.wait_objectives
            or DEFAULT_OBJECTIVES,
            pace=Pace(),
            refuse=log_refused_transition,
            process_tasks=(
                partial(report_lag, self._telemetry),
                self._clock.stop_if_set_back,
                *sizes,
                keep_out_of_collections,
            ),
        )

    async def run(self) -> None:
        """Run the control loop until a signal or a failure, which is raised.

        A shared store that fails, or has another leader, ends only the leadership.
        """
        try:
            await self._run()
        except (StoreError, BaseExceptionGroup) as error:
            if self._led is None or not is_of_store(error):
                raise
            self._leadership_ended = True
            _log.error("leadership_ended", reason=failure_of(error))

    async def _run(self) -> None:
        await self.controller.reconciler.run()
        if self.controller.crashes:
            raise BaseExceptionGroup("a background task failed", self.controller.crashes)

    @property
    def continues(self) -> bool:
        """Whether the process goes on after these parts: with a reload, or as a replica that follows."""
        return self.reloading.restarts or self._leadership_ended

    async def finish(self) -> None:
        """Finish requests in flight, those of machines first, and store the results."""
        _log.info("shutdown_started", in_flight=len(self.controller.effects))
        self.controller.bootstrap.shut_down()
        if self.continues:
            self.serving.keep_listening()
        await self.serving.stop()
        try:
            await self.controller.reconciler.drain(RELEASE_WITHIN if self._led else FINISH_WITHIN)
        except StoreError:
            if not self._leadership_ended:
                raise

    def _make_serving(self, agent: bytes, kept: KeptSockets, earlier: tuple[bytes, ...]) -> Serving:
        webhook = webhook_endpoint(
            self.in_use.configuration, self.controller.intake.accept, self._clock, self._telemetry
        )
        earlier += keep_agent_beside(self.in_use.configuration.sqlite_file(), agent)
        tokens = metrics_tokens(self.in_use.configuration)
        others: list[Endpoint] = [
            BootstrapEndpoint(self.controller.bootstrap, agent, self._telemetry, earlier=earlier),
            HealthEndpoint(self._unhealthy, self._unready, self._metrics, tokens),
        ]
        operators = token_file(self.in_use.configuration)
        if operators is not None:
            queries = self.controller.queries
            wrong_tokens = WrongTokens(asyncio.get_running_loop().time)
            others += [
                AdminEndpoint(
                    self.controller.operator_actions,
                    self.controller.operator_holds,
                    queries,
                    self.reloading,
                    operators.tokens,
                    wrong_tokens,
                ),
                console_endpoint(self.in_use.configuration, queries, operators, wrong_tokens),
            ]
        settings = server_settings(self.in_use.configuration)
        allowed = settings.within(file_limit())
        if allowed != settings:
            most = allowed.max_connections
            _log.warning("connections_limited", files=file_limit(), connections=most)
        return Serving(allowed, webhook, others, kept, self._lease_secret)

    def _lease_secret(self) -> str | None:
        return self._led[1].secret if self._led else None

    def _unhealthy(self) -> list[str]:
        turned_at = self.controller.reconciler.turned_at
        if turned_at is None or self._pacing.now() - turned_at < HUNG_AFTER:
            return []
        return [f"the control loop has made no pass for {HUNG_AFTER:g} s"]

    def _unready(self) -> list[str]:
        controller = self.controller
        unopened = controller.provider_opener.unopened
        reasons = [f"provider {name} could not be opened and listed" for name in unopened]
        if controller.reconciler.turned_at is None:
            reasons.append("the control loop has made no pass yet")
        if not controller.redelivery.github_answered:
            reasons.append("GitHub has not answered yet")
        return sorted(reasons)

    def _metrics(self) -> tuple[Iterable[bytes], str]:
        return self._telemetry.render(), self._telemetry.content_type


def _made(name: ProviderName, factory: ProviderFactory, context: ProviderContext) -> Provider:
    try:
        return factory.make(context)
    except ValueError as error:
        raise UnusableProviderError(f"provider {name} cannot be created: {error}") from error
