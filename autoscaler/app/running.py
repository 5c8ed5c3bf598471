"""Creates, starts and stops every part of a controller, in that order."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from autoscaler import config
from autoscaler.app.host import new_event_loop, raise_file_limit
from autoscaler.app.parts import Parts, UnusableProviderError
from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import provider_factories
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.reconciler import failure_of
from autoscaler.controller.system import SystemClock
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.observability.logs import LogLevel, LogStyle, configure_logging
from autoscaler.providers.registry import PROVIDERS, provider_kinds
from autoscaler.server.listener import ListenError
from autoscaler.server.token_file import UnusableTokensError
from autoscaler.store.opening import open_store

_log = structlog.get_logger(__name__)


def serve(
    path: Path,
    *,
    log_format: str,
    log_level: str,
    clock: SystemClock | None = None,
    providers: tuple[str, ...] = PROVIDERS,
) -> int:
    """Run the controller until SIGTERM or SIGINT; return the exit status.

    `clock` is the system's unless the laboratory gives a faster one. `providers` are lines of the registry.
    Raises ConfigurationError.
    """
    # A full disk is not an error of fleet.yaml: opening the store reports it in the log.
    configuration = load_for_service(path, try_store=False, providers=providers)
    configure_logging(LogLevel(log_level), LogStyle(log_format))
    for warning in configuration.warnings:
        _log.warning("configuration_warning", problem=str(warning))
    for line in config.not_in_force(configuration.settings):
        _log.warning("key_ignored", key=line)
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(configuration, clock or SystemClock(), providers))
    except (StoreError, ListenError, UnusableProviderError, UnusableTokensError) as error:
        _log.error("stopped", reason=str(error))
        return 1
    except BaseExceptionGroup as group:
        _log.error("stopped", reason=failure_of(group))
        return 1
    return 0


async def _serve(
    configuration: config.Configuration, clock: SystemClock, providers: tuple[str, ...]
) -> None:
    file = configuration.sqlite_file()
    url = configuration.settings.store if file is None else f"sqlite:///{file.resolve()}"
    async with AsyncExitStack() as stack:
        factories = provider_factories(configuration, provider_kinds(providers))
        for factory in factories.values():
            stack.push_async_callback(factory.close)
            await factory.start()  # SDKs are imported while the store is opened
        store = await open_store(url)
        stack.push_async_callback(store.close)
        saved = await store.load(clock.now() - KEPT_FOR)
        parts = Parts(configuration, clock, store, saved, factories, providers)
        stack.push_async_callback(parts.github.close)
        for provider in parts.providers.values():
            stack.push_async_callback(provider.close)
        await parts.resume(saved)
        parts.stop_on_signals()
        await stack.enter_async_context(parts.serving)
        stack.push_async_callback(parts.finish)
        _log.info("serving", fleet=configuration.settings.fleet, on=str(parts.serving.address))
        await parts.run()
