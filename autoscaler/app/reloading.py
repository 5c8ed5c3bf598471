"""Applies a changed fleet.yaml, and previews what one would do.

Reading and checking run in a thread, because a large file takes a second. A running controller uses changed
SKUs and limits from one step of the event loop on, between two plans. For a change of other keys, it starts
again within its process.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from autoscaler import config
from autoscaler.app.changes import Change, log_refusal, log_warnings, lost_machines
from autoscaler.app.planned_file import (
    as_reloaded,
    refuse_large,
    refuse_many_offerings,
)
from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import catalogue, health_check_parameters, provider_factories
from autoscaler.config.changed_keys import changed_keys, is_applied_live, shown
from autoscaler.config.problems import KeyPath
from autoscaler.controller.operators.reconfiguration import Reconfiguration
from autoscaler.controller.ports.bootstrap import HealthChecks
from autoscaler.controller.ports.operator_requests import (
    ControllerStopsError,
    PlanAgainst,
    PlanInProgressError,
    RefusedConfigurationError,
    Reloaded,
)
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.controller.reconciler import Reconciler
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.operators import OperatorName
from autoscaler.model.wording import counted
from autoscaler.providers.registry import provider_kinds

Remake = Callable[[Provider], Provider]
"""Makes a provider with other SKUs from a running one: see `ProviderFactory.remake`."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class InUse:
    """What the parts of the process read of the configuration while it runs."""

    configuration: config.Configuration
    health_checks: dict[SkuName, HealthChecks]


class Reloading:
    """Implements ConfigurationRequests."""

    def __init__(
        self,
        in_use: InUse,
        providers: MutableMapping[ProviderName, Provider],
        context: ProviderContext,
        controller: Reconfiguration,
        use_skus: Callable[[Iterable[SkuName]], None],
        loop: Reconciler,
        registered: tuple[str, ...],
    ) -> None:
        """`use_skus` gets the names of all SKUs, for metrics. `registered` are lines of the registry.

        `providers` are those that the controller uses: a reload replaces them there.
        """
        self._use_skus = use_skus
        self._loop = loop
        self._change: Change | None = None
        self._in_use = in_use
        self._providers = providers
        self._context = context
        self._controller = controller
        self._registered = registered
        self._one_reload_at_a_time = asyncio.Lock()
        self._reloads: set[asyncio.Task[Reloaded]] = set()
        self._planning: asyncio.Task[PlanAgainst] | None = None

    @property
    def restarts(self) -> bool:
        """Whether a reload stopped the controller, so that it starts again."""
        return self._change is not None

    def decide(self) -> Change | None:
        """Return the change to start again with, or None to start with the same configuration.

        Call it when no request is in flight any more: a machine may have been launched since the reload that
        the change would lose.
        """
        change = self._change
        if change is not None and (problems := self._losses(change.configuration, change.paths)):
            log_refusal(change.by, problems)
            return None
        return change

    async def reload(self, *, by: OperatorName) -> Reloaded:
        """See `ConfigurationRequests.reload`. If the caller is cancelled, the reload goes on."""
        reloading = asyncio.create_task(self._reload_alone(by))
        self._reloads.add(reloading)
        reloading.add_done_callback(self._reloads.discard)
        return await asyncio.shield(reloading)

    async def plan_against(self, content: bytes) -> PlanAgainst:
        """See `ConfigurationRequests.plan_against`. If the caller is cancelled, the plan goes on.

        A thread makes most of it and cannot be stopped, so that further plans are refused until it is done.
        """
        if self._planning is not None and not self._planning.done():
            raise PlanInProgressError
        self._planning = asyncio.create_task(self._plan_against(content))
        return await asyncio.shield(self._planning)

    async def _plan_against(self, content: bytes) -> PlanAgainst:
        with _refusals():
            new = await asyncio.to_thread(self._load_sent, content)
            paths = await asyncio.to_thread(self._changed, new)
            reloaded = await asyncio.to_thread(as_reloaded, self._in_use.configuration, new)
            remakes = await asyncio.to_thread(self._remakes, reloaded)
            remade = self._remade(remakes)
            found = await asyncio.to_thread(self._catalogue, reloaded, remade)
            refuse_many_offerings(new, found)
        preview = await self._controller.preview(found)
        live = [path for path in paths if is_applied_live(path)]
        others = [path for path in paths if not is_applied_live(path)]
        refused = tuple(self._losses(new, others))
        return PlanAgainst(tuple(shown(live)), tuple(shown(others)), refused, preview)

    async def _reload_alone(self, by: OperatorName) -> Reloaded:
        async with self._one_reload_at_a_time:
            try:
                with _refusals():
                    return await self._reload(by)
            except RefusedConfigurationError as error:
                log_refusal(by, error.problems)
                raise

    async def _reload(self, by: OperatorName) -> Reloaded:
        if self._loop.stopping:
            raise ControllerStopsError
        new = await asyncio.to_thread(self._load, None)
        paths = await asyncio.to_thread(self._changed, new)
        # A controller that starts again makes these anew: here they find more problems before it stops.
        health_checks = await asyncio.to_thread(
            health_check_parameters, new, provider_kinds(self._registered)
        )
        remakes = await asyncio.to_thread(self._remakes, new)
        if not all(is_applied_live(path) for path in paths):
            return self._start_again(Change(new, by, tuple(paths)))
        # From here to the change of the catalogue nothing else runs.
        remade = self._remade(remakes)
        self._in_use.configuration = new
        self._in_use.health_checks.clear()
        self._in_use.health_checks.update(health_checks)
        self._providers.update(remade)
        self._use_skus([SkuName(name) for name in new.settings.skus])
        keys = tuple(shown(paths))
        moved = await self._controller.change_catalogue(
            self._catalogue(new, self._providers), by, keys
        )
        log_warnings(new)
        _log.warning("configuration_reloaded", by=by, changed=list(keys), jobs=moved)
        await self._controller.read_providers_again()
        done = "no key changed; reread boot scripts and versions_file"
        if keys:
            done = (
                f"{counted(len(keys), 'change')} in force, {counted(moved, 'job')} with other SKUs"
            )
        return Reloaded(keys, done)

    def _start_again(self, change: Change) -> Reloaded:
        """Stop the controller, which then starts with the change.

        Raises RefusedConfigurationError, ControllerStopsError.
        """
        if self._loop.stopping:
            raise ControllerStopsError
        if problems := self._losses(change.configuration, change.paths):
            raise RefusedConfigurationError(problems)
        self._change = change
        _log.warning("controller_restarts", by=change.by, changed=list(change.keys))
        self._loop.stop()
        what = counted(len(change.keys), "change")
        done = f"the controller starts again within its process to use {what}"
        return Reloaded(change.keys, done)

    def _losses(self, new: config.Configuration, paths: Iterable[KeyPath]) -> list[str]:
        before, machines_at = self._in_use.configuration.settings, self._controller.machines_at
        return lost_machines(before, new, paths, machines_at)

    def _load(self, content: bytes | None) -> config.Configuration:
        """Check fleet.yaml, or this text in its place. Raises ConfigurationError."""
        path, files = self._in_use.configuration.path, content is None
        return load_for_service(
            path, files=files, try_store=False, providers=self._registered, content=content
        )

    def _load_sent(self, content: bytes) -> config.Configuration:
        """Check a text that is to be planned with. Raises ConfigurationError."""
        new = self._load(content)
        refuse_large(new)
        return new

    def _changed(self, new: config.Configuration) -> list[KeyPath]:
        return changed_keys(self._in_use.configuration.settings, new.settings)

    def _remakes(self, new: config.Configuration) -> dict[ProviderName, Remake]:
        """Return what makes each provider with the SKUs of a configuration.

        Raises RefusedConfigurationError.
        """
        factories = provider_factories(new, provider_kinds(self._registered))
        try:
            return {
                name: factories[name].remake(self._context)
                for name in self._providers
                if name in factories
            }
        except (OSError, ValueError) as error:
            raise RefusedConfigurationError([f"a provider cannot use it: {error}"]) from None

    def _remade(self, remakes: Mapping[ProviderName, Remake]) -> dict[ProviderName, Provider]:
        """Return the providers with other SKUs. Raises RefusedConfigurationError."""
        try:
            return {name: make(self._providers[name]) for name, make in remakes.items()}
        except ValueError as error:
            raise RefusedConfigurationError([f"a provider cannot use it: {error}"]) from None

    def _catalogue(
        self, new: config.Configuration, providers: Mapping[ProviderName, Provider]
    ) -> Catalogue:
        opened = [name for name in self._controller.opened if name in providers]
        return catalogue(new, self._controller.catalogue.installations, opened, providers)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise RefusedConfigurationError for a ConfigurationError."""
    try:
        yield
    except config.ConfigurationError as error:
        raise RefusedConfigurationError([str(one) for one in error.problems]) from None
