"""The composition root: the only file that names concrete classes, and how they are put together.

It decides the order of start and stop, and nothing that happens in between.
"""

import asyncio
import hashlib
import resource
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import structlog

from autoscaler import config
from autoscaler.config.settings import Ec2Settings as Ec2Section
from autoscaler.config.sku_settings import SkuSettings
from autoscaler.controller.asking import Asking
from autoscaler.controller.bootstrap import BootstrapDesk
from autoscaler.controller.effects import Effects
from autoscaler.controller.ending import Ending
from autoscaler.controller.executor import Executor
from autoscaler.controller.granting import Granting
from autoscaler.controller.intake import Intake
from autoscaler.controller.journal import Journal
from autoscaler.controller.launching import Launching
from autoscaler.controller.loop import Loop, Pace, failure_of
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.store import SavedState, Store, StoreError
from autoscaler.controller.reconciler import Reconciler
from autoscaler.controller.releasing import Releasing
from autoscaler.controller.system import RandomIds, SystemClock
from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.ledger.ledger import REMEMBERED_FOR, Ledger
from autoscaler.model.catalogue import Architecture, Catalogue, OperatingSystem, Rung
from autoscaler.model.events import ControllerStarted
from autoscaler.model.identifiers import ProviderName, Seconds, SkuName
from autoscaler.observability.logs import LogLevel, LogStyle, configure_logging
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.providers.ec2 import instance_types
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku
from autoscaler.providers.ec2.user_data import render_user_data
from autoscaler.server.bootstrap import BootstrapEndpoint
from autoscaler.server.health import HealthEndpoint
from autoscaler.server.listener import ListenError
from autoscaler.server.serving import Serving
from autoscaler.server.settings import Address, ServerSettings, TlsFiles
from autoscaler.server.webhook import WebhookEndpoint
from autoscaler.store.opening import open_store

STANDS_STILL_AFTER: Seconds = 60.0
"""A loop that has not turned for this long (real time) is reported as unhealthy."""

FINISH_WITHIN: Seconds = 30.0
"""How long what is in flight may take after SIGTERM (real time)."""

REOPEN_FIRST: Seconds = 5.0
REOPEN_RAREST: Seconds = 300.0

CLOCK_SKEW: Seconds = 60.0
"""How far a machine's clock may be off; GitHub's tokens live for minutes."""

_log = structlog.get_logger(__name__)


def serve(
    path: Path, *, clock_scale: float, clock_epoch: float, log_format: str, log_level: str
) -> int:
    """Run the controller until SIGTERM or SIGINT; the exit status.

    Raises ConfigurationError. A `clock_scale` other than 1 is for the lab.
    """
    configuration = config.load(path)
    if problems := offering_problems(configuration):
        raise config.ConfigurationError(problems)
    configure_logging(LogLevel(log_level), LogStyle(log_format))
    for warning in configuration.warnings:
        _log.warning("configuration", problem=str(warning))
    for line in config.not_in_force(configuration.settings):
        _log.warning("not_in_force", key=line)
    _raise_file_limit()
    clock = SystemClock(clock_scale, clock_epoch)
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(_serve(configuration, clock))
    except (StoreError, ListenError) as error:
        _log.error("stopped", reason=str(error))
        return 1
    except BaseExceptionGroup as group:
        _log.error("stopped", reason=failure_of(group))
        return 1
    return 0


def offering_problems(configuration: config.Configuration) -> tuple[config.Problem, ...]:
    """What the ladders ask of EC2 and EC2 does not have, by the project's own table."""
    table = instance_types.instance_types()
    families = {instance_types.quota_family(name) for name in table}
    return config.validate_offerings(configuration, _type_problem, families)


def _type_problem(
    instance_type: str, os: OperatingSystem, arch: Architecture, prices: Any
) -> str | None:
    try:
        found = instance_types.instance_type(instance_type)
        found.dollars_per_hour(os, prices)
    except instance_types.InstanceTypeError as error:
        return str(error)
    return None if found.arch is arch else f"{found.name} is {found.arch}, the SKU is {arch}"


async def _serve(configuration: config.Configuration, clock: SystemClock) -> None:
    file = configuration.sqlite_file()
    url = configuration.settings.store if file is None else f"sqlite:///{file.resolve()}"
    async with AsyncExitStack() as stack:
        store = await open_store(url)
        stack.push_async_callback(store.close)
        saved = await store.load(clock.now() - REMEMBERED_FOR)
        fleet = _Fleet(configuration, clock, store, saved)
        stack.push_async_callback(fleet.github.close)
        for provider in fleet.providers.values():
            stack.push_async_callback(provider.close)
        await asyncio.gather(*(fleet.open_provider(name) for name in fleet.providers))
        await fleet.resume(saved)
        await stack.enter_async_context(fleet.serving)
        stack.push_async_callback(fleet.finish)
        _log.info("serving", fleet=configuration.settings.fleet, on=str(fleet.serving.address))
        await fleet.run()


class _Fleet:
    """Every part of a running controller, put together."""

    def __init__(
        self,
        configuration: config.Configuration,
        clock: SystemClock,
        store: Store,
        saved: SavedState,
    ) -> None:
        self._configuration = configuration
        self._clock = clock
        self._pacing = SystemClock()
        self._installation = saved.installation
        self._opened: dict[ProviderName, Ec2Provider] = {}
        self._crash: BaseException | None = None
        settings = configuration.settings
        self._telemetry = PrometheusTelemetry(
            [SkuName(name) for name in settings.skus],
            [ProviderName(name) for name in settings.providers],
            version("gpu-runner-autoscaler"),
        )
        agent = files("autoscaler.agent").joinpath("agent.py").read_bytes()
        self.github = self._make_github()
        self.providers = self._make_providers(hashlib.sha256(agent).hexdigest())
        self._journal = Journal(Ledger(self._catalogue()), store, clock, self._telemetry)
        self._effects = Effects(self._crashed)
        self._granting = Granting(self._journal, self.github, clock)
        self._intake = Intake(store, self._journal, parse_workflow_job)
        alive_until = saved.heartbeat if saved.heartbeat is not None else clock.now()
        self._reconciler = Reconciler(
            self._journal, store, self.github, self.providers, clock, alive_until
        )
        self._desk = BootstrapDesk(
            self._journal,
            self._granting,
            Releasing(self._journal, self.github, self._granting, self._effects),
            self.providers,
            {SkuName(name): self._gate(sku) for name, sku in settings.skus.items()},
            self._reconciler.sweep_soon,
        )
        self._loop = self._make_loop()
        self.serving = self._make_serving(agent)

    async def open_provider(self, name: ProviderName) -> bool:
        """Try to reach a provider; its offerings are in the catalogue from then on."""
        try:
            await self.providers[name].open()
        except (ProviderError, OutcomeUnknownError) as error:
            _log.error("provider_not_opened", provider=name, error=str(error))
            return False
        self._opened[name] = self.providers[name]
        self._journal.ledger.replace_catalogue(self._catalogue())
        return True

    async def resume(self, saved: SavedState) -> None:
        """Take over what an earlier process left. Raises StoreError."""
        ledger, now = self._journal.ledger, self._clock.now()
        ledger.restore(
            (*saved.calls, *saved.machines, *saved.runners, *saved.jobs), saved.cooldowns
        )
        absence = max(0.0, now - saved.heartbeat) if saved.heartbeat is not None else 0.0
        await self._journal.record(ControllerStarted(now, absence))
        self._intake.resume(*saved.unapplied)

    async def run(self) -> None:
        """Turn the loop until SIGTERM, SIGINT or a failure, which is raised."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._loop.stop)
        reopening = [
            loop.create_task(self._reopen(name)) for name in set(self.providers) - set(self._opened)
        ]
        try:
            await self._loop.run()
        finally:
            for task in reopening:
                task.cancel()
        if self._crash is not None:
            raise BaseExceptionGroup("an effect failed", [self._crash])

    async def finish(self) -> None:
        """Let what is in flight end, machines' requests first, and make it durable."""
        _log.info("finishing", in_flight=len(self._effects))
        self._desk.leave()
        await self.serving.stop()
        await self._loop.drain(FINISH_WITHIN)

    async def _reopen(self, name: ProviderName) -> None:
        wait = REOPEN_FIRST
        while True:
            await self._clock.sleep(wait)
            if await self.open_provider(name):
                return
            wait = min(2.0 * wait, REOPEN_RAREST)

    def _crashed(self, error: BaseException) -> None:
        _log.error("effect_failed", error=failure_of(error), exc_info=error)
        self._crash = self._crash or error
        self._loop.stop()

    # --- how the parts are made ---------------------------------------------------------------

    def _catalogue(self) -> Catalogue:
        settings = self._configuration.settings
        return Catalogue(
            fleet=settings.fleet,
            installation=self._installation,
            skus={
                SkuName(name): config.sku(settings, name, tuple(self._rungs(sku)))
                for name, sku in settings.skus.items()
            },
            scopes=config.scopes(settings),
            limits=config.limits(settings),
            registration=config.registration_rate(settings),
        )

    def _rungs(self, sku: SkuSettings) -> Iterator[Rung]:
        for rung in sku.ladder:
            provider = self._opened.get(ProviderName(rung.provider))
            if provider is not None and rung.instance_types:
                offerings = provider.offerings(rung.instance_types, rung.capacity, sku.os, sku.arch)
                yield Rung(provider.name, rung.capacity, offerings)

    def _make_github(self) -> GitHubClient:
        keys = tuple(
            AppKey(key.id, key.private_key.get_secret_value().decode())
            for key in config.read_private_keys(self._configuration)
        )
        api_url = self._configuration.settings.github.api_url
        return GitHubClient(
            GitHubSettings(api_url, keys), self._clock, self._telemetry, token_clock=self._pacing
        )

    def _make_providers(self, agent_sha256: str) -> dict[ProviderName, Ec2Provider]:
        return {
            ProviderName(name): Ec2Provider(
                self._ec2_settings(name, provider.ec2, agent_sha256), self._telemetry, self._clock
            )
            for name, provider in self._configuration.settings.providers.items()
            if provider.ec2 is not None
        }

    def _ec2_settings(self, name: str, ec2: Ec2Section, agent_sha256: str) -> Ec2Settings:
        configuration = self._configuration
        settings = configuration.settings
        tls = settings.server.tls
        ca_file = configuration.file(tls.ca_file) if tls and tls.ca_file else None
        ca_pem = ca_file.read_text() if ca_file else None
        return Ec2Settings(
            name=ProviderName(name),
            fleet=settings.fleet,
            installation=self._installation,
            region=ec2.region,
            subnets=ec2.subnets,
            security_groups=ec2.security_groups,
            skus={
                SkuName(sku): Ec2Sku(
                    SkuName(sku),
                    found.os,
                    found.arch,
                    found.image.name,
                    found.image.owner,
                    found.disk_gb,
                    render_user_data(
                        found.os, settings.server.public_url, name, agent_sha256, ca_pem
                    ),
                )
                for sku, found in settings.skus.items()
                if found.image is not None
            },
            instance_profile=ec2.instance_profile,
            identity_certificates=tuple(map(configuration.file, ec2.identity_certificates)),
            account=ec2.account,
            prices=ec2.prices,
        )

    def _gate(self, sku: SkuSettings) -> dict[str, Any]:
        return {
            "disk_gb": max(1, (sku.disk_gb or 0) // 10),
            "clock_skew_s": CLOCK_SKEW,
            "github": self._configuration.settings.github.api_url,
        }

    def _make_loop(self) -> Loop:
        executor = Executor(
            self._journal,
            RandomIds(),
            self._effects,
            Launching(self._journal, self.providers),
            self._granting,
            Ending(self._journal, self.providers, self._pacing),
            Asking(self._journal, self.github),
        )
        return Loop(
            self._journal,
            self._intake,
            executor,
            self._reconciler,
            self._effects,
            self._telemetry,
            self._clock,
            self._pacing,
            Pace(),
        )

    def _make_serving(self, agent: bytes) -> Serving:
        server = self._configuration.settings.server
        secrets = [
            secret.get_secret_value() for secret in config.read_webhook_secrets(self._configuration)
        ]
        tls, hook = server.tls, server.webhook_listen
        certificate = tls and self._configuration.file(tls.certificate_file)
        key = tls and self._configuration.file(tls.key_file)
        return Serving(
            ServerSettings(
                Address(server.listen.host, server.listen.port),
                Address(hook.host, hook.port) if hook is not None else None,
                TlsFiles(certificate, key) if certificate and key else None,
            ),
            WebhookEndpoint(
                lambda body, header: verify_signature(body, header, secrets),
                parse_workflow_job,
                self._intake.accept,
                self._clock,
                self._telemetry,
            ),
            [
                BootstrapEndpoint(self._desk, agent, self._telemetry),
                HealthEndpoint(self._unhealthy, self._unready, self._metrics),
            ],
        )

    # --- what it says of itself ---------------------------------------------------------------

    def _unhealthy(self) -> list[str]:
        turned_at = self._loop.turned_at
        if turned_at is None or self._pacing.now() - turned_at < STANDS_STILL_AFTER:
            return []
        return [f"the control loop has not turned for {STANDS_STILL_AFTER:g} s"]

    def _unready(self) -> list[str]:
        reasons = [
            f"provider {p} could not be opened" for p in set(self.providers) - set(self._opened)
        ]
        waiting = set(self._opened) - self._reconciler.swept
        reasons += [f"the machines of provider {p} were not listed yet" for p in waiting]
        if self._loop.turned_at is None:
            reasons.append("the control loop has not turned yet")
        if not self._reconciler.github_answered:
            reasons.append("GitHub has not answered yet")
        return sorted(reasons)

    def _metrics(self) -> tuple[bytes, str]:
        return self._telemetry.render(), self._telemetry.content_type


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _raise_file_limit() -> None:
    """A parked machine holds a connection: use what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
