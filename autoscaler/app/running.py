"""Creates, starts and stops every part of a controller, in that order, and again if a reload needs it."""

import asyncio
import os
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from autoscaler import config
from autoscaler.app.agent_file import own_agent
from autoscaler.app.changes import Change, log_refusal, log_warnings
from autoscaler.app.event_loop import new_event_loop, without_collections
from autoscaler.app.following import Following, ReplicaOptions
from autoscaler.app.parts import Opened, Parts, UnusableProviderError
from autoscaler.app.preflight import load_for_service
from autoscaler.app.process import Signals, raise_file_limit
from autoscaler.app.translation import provider_factories
from autoscaler.console.runbooks import read_runbooks
from autoscaler.controller.ports.replicas import Lease, SharedStore
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.reconciler import failure_of
from autoscaler.controller.replicas.leading import FOLLOW_AFTER, renewing
from autoscaler.controller.system import SystemClock
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model.operators import OperatorName
from autoscaler.observability.logs import LogLevel, LogStyle, configure_logging
from autoscaler.providers.registry import PROVIDERS, provider_kinds
from autoscaler.server.listening.listener import KeptSockets, ListenError
from autoscaler.server.tokens import UnusableTokensError
from autoscaler.store.opening import is_shared, open_store

if TYPE_CHECKING:
    from autoscaler.observability.traces import OtlpTraces

TRACES_TO = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's variables (its specification, "OpenTelemetry Protocol Exporter")."""

CANNOT_START = (StoreError, ListenError, UnusableProviderError, UnusableTokensError)
"""Why a controller cannot start with a valid configuration."""

_log = structlog.get_logger(__name__)


def serve(
    path: Path,
    *,
    log_format: str,
    log_level: str,
    clock: SystemClock | None = None,
    providers: tuple[str, ...] = PROVIDERS,
    replica: ReplicaOptions | None = None,
) -> int:
    """Run the controller until SIGTERM or SIGINT; return the exit status.

    On a store that several replicas share, the controller runs while this one leads.

    `clock` is the system's unless the laboratory gives a faster one. `providers` are lines of the registry.
    Raises ConfigurationError, also for `intake_only` on a store that is not shared.
    """
    # A full disk is not an error of fleet.yaml: opening the store reports it in the log.
    configuration = load_for_service(path, try_store=False, providers=providers)
    options = replica or ReplicaOptions()
    if options.intake_only and not is_shared(configuration.store_url()):
        what = "is a SQLite file, which a process with --intake-only cannot share"
        fix = "name a PostgreSQL database, or start without --intake-only"
        raise config.ConfigurationError([configuration.error(("store",), what, fix)])
    configure_logging(LogLevel(log_level), LogStyle(log_format))
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            process = _Process(clock or SystemClock(), providers, options)
            runner.run(process.serve(configuration))
    except CANNOT_START as error:
        _log.error("stopped", reason=str(error))
        return 1
    except BaseExceptionGroup as group:
        _log.error("stopped", reason=failure_of(group))
        return 1
    return 0


class _Process:
    """One process, in which a controller may run again and again."""

    def __init__(
        self, clock: SystemClock, providers: tuple[str, ...], replica: ReplicaOptions
    ) -> None:
        self._clock = clock
        self._providers = providers
        self._replica = replica
        self._kept = KeptSockets()
        self._leads = False
        self._followed = False

    async def serve(self, configuration: config.Configuration) -> None:
        """Serve until a signal."""
        process = asyncio.current_task()
        assert process is not None
        signals = Signals(process)
        try:
            await self._serve(configuration, signals)
        except asyncio.CancelledError:
            if not signals.stopped:
                raise
        finally:
            self._kept.close()

    async def _serve(self, configuration: config.Configuration, signals: Signals) -> None:
        """Serve. A reload can start the controller again, with its changed configuration.

        A replica whose leadership ends waits until it leads again.
        """
        earlier, change = configuration, None
        while True:
            async with AsyncExitStack() as stack:
                try:
                    parts = await self._start(stack, configuration, signals)
                except Exception as error:  # any: the earlier configuration could be started with
                    if change is not None:
                        _log_failed_start(change, error)
                        configuration, change = earlier, None
                    elif self._leads and isinstance(error, StoreError):
                        _log.error("leadership_ended", reason=failure_of(error))
                    else:
                        raise
                    continue
                self._kept.close()
                if change is not None:
                    await parts.controller.reconfiguration.note_reload(change.by, change.keys)
                    keys = list(change.keys)
                    _log.warning("configuration_reloaded", by=change.by, changed=keys)
                signals.use(parts.controller.reconciler, parts.reloading)
                await parts.run()
            if signals.stopped or not parts.continues:
                return
            signals.use_none()
            change, earlier = parts.reloading.decide(), parts.in_use.configuration
            configuration = earlier if change is None else change.configuration

    async def _start(
        self, stack: AsyncExitStack, configuration: config.Configuration, signals: Signals
    ) -> Parts:
        """Create all parts, resume and serve. `stack` then stops them.

        Raises one of CANNOT_START, or ConfigurationError if a file that the configuration names is unusable
        now.
        """
        if self._leads:
            # The lease is given up by now. A store that failed may fail again.
            await asyncio.sleep(FOLLOW_AFTER)
        self._leads, led = False, None
        if is_shared(configuration.store_url()):
            _prepare_to_lead()
            while led is None:
                following = Following(
                    configuration, self._clock, self._kept, self._replica, again=self._followed
                )
                self._followed = True
                led = await signals.unless_reloaded(following.until_leading())
                if led is not None:
                    stack.push_async_callback(led[0].close)
                # A SIGHUP asks for it, and the replica that led before may have reloaded the file.
                configuration = await self._latest(configuration)
            self._leads = True
        async with AsyncExitStack() as starting:
            starting.enter_context(without_collections())
            if led is not None:
                await starting.enter_async_context(renewing(led[0], SystemClock()))
            return await self._make(stack, configuration, led)

    async def _make(
        self,
        stack: AsyncExitStack,
        configuration: config.Configuration,
        led: tuple[SharedStore, Lease] | None,
    ) -> Parts:
        """Create all parts on an open or a new store, resume and serve. Raises as `_start` does."""
        log_warnings(configuration)
        factories = provider_factories(configuration, provider_kinds(self._providers))
        for factory in factories.values():
            stack.push_async_callback(factory.close)
            await factory.start()  # SDKs are imported while the store is opened
        opened = await self._opened(stack, configuration, led)
        traces = open_traces(configuration.settings.fleet)
        if traces is not None:
            stack.push_async_callback(asyncio.to_thread, traces.close)
        parts = Parts(
            configuration,
            self._clock,
            opened,
            factories,
            self._providers,
            traces,
            self._kept,
        )
        stack.push_async_callback(parts.github.close)
        for provider in parts.providers.values():
            stack.push_async_callback(provider.close)
        await parts.controller.resume(opened.saved)
        await stack.enter_async_context(parts.serving)
        stack.push_async_callback(parts.finish)
        fleet = configuration.settings.fleet
        _log.info("serving", fleet=fleet, on=str(parts.serving.address))
        return parts

    async def _opened(
        self,
        stack: AsyncExitStack,
        configuration: config.Configuration,
        led: tuple[SharedStore, Lease] | None,
    ) -> Opened:
        """Load the store. Open it first if it is not shared. Raises: StoreError."""
        horizon = self._clock.now() - KEPT_FOR
        if led is not None:
            shared, _ = led
            agents = await shared.keep_agent(own_agent())
            return Opened(shared, await shared.load(horizon), led, agents)
        store = await open_store(configuration.store_url())
        stack.push_async_callback(store.close)
        return Opened(store, await store.load(horizon))

    async def _latest(self, configuration: config.Configuration) -> config.Configuration:
        """Return the file's configuration, or this one if the file is wrong."""
        try:
            return await asyncio.to_thread(
                load_for_service, configuration.path, try_store=False, providers=self._providers
            )
        except config.ConfigurationError as error:
            log_refusal(OperatorName("replica"), [str(one) for one in error.problems])
            return configuration


def _log_failed_start(change: Change, error: Exception) -> None:
    expected = isinstance(error, (*CANNOT_START, config.ConfigurationError))
    why = str(error) if expected else failure_of(error)
    problem = f"the controller cannot start with it: {why}"
    log_refusal(change.by, [problem], unexpected=None if expected else error)


def _prepare_to_lead() -> None:
    """Compute what every leader needs. A takeover then does not wait for it, a second on a busy host."""
    own_agent()
    read_runbooks()


def open_traces(fleet: str) -> "OtlpTraces | None":
    """Return the export of traces, or None without an endpoint. The SDK is imported only if there is one."""
    if not any(os.environ.get(name) for name in TRACES_TO):
        return None
    from autoscaler.observability.traces import OtlpTraces

    traces = OtlpTraces(fleet, version("gpu-runner-autoscaler"))
    traces.start()
    return traces
