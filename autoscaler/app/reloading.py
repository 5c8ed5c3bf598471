"""Takes a changed fleet.yaml into force, and says what one would do.

Reading and checking run in a thread, because a large file takes a second. What the controller uses changes in
one step of the event loop, between two plans.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from autoscaler import config
from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import catalogue, health_check_parameters, provider_factories
from autoscaler.config.changed_keys import RESTART_FIX, changed_keys, shown, takes_effect
from autoscaler.config.problems import KeyPath
from autoscaler.controller.guarded_providers import GuardedProvider
from autoscaler.controller.ports.configuration_requests import (
    PlanAgainst,
    RefusedConfigurationError,
    Reloaded,
)
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.operators import OperatorName
from autoscaler.model.wording import counted
from autoscaler.providers.registry import provider_kinds
from autoscaler.views.preview import Preview

MAX_READY = 20_000
"""Maximum number of ready machines in a file to plan with. The event loop makes the plan."""

_log = structlog.get_logger(__name__)


class Reconfigurable(Protocol):
    """The part of a controller that uses a changed configuration."""

    @property
    def opened(self) -> Collection[ProviderName]:
        """The providers whose offerings are in use."""

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue in use."""

    async def read_providers_again(self) -> None:
        """Read what new SKUs need from the open providers, and use it."""

    def change_catalogue(self, changed: Catalogue) -> int:
        """Use another catalogue. Return how many jobs have other SKUs since."""

    async def preview(self, changed: Catalogue) -> Preview:
        """Return what the planner would do with another catalogue."""


@dataclass(slots=True)
class InUse:
    """What the parts of the process read of the configuration while it runs."""

    configuration: config.Configuration
    health_checks: dict[SkuName, dict[str, Any]]


class Reloading:
    """Implements ConfigurationRequests."""

    def __init__(
        self,
        in_use: InUse,
        providers: Mapping[ProviderName, GuardedProvider],
        context: ProviderContext,
        controller: Reconfigurable,
        use_skus: Callable[[Iterable[SkuName]], None],
        registered: tuple[str, ...],
    ) -> None:
        """`use_skus` gets the names of all SKUs, for metrics. `registered` are lines of the registry."""
        self._use_skus = use_skus
        self._in_use = in_use
        self._providers = providers
        self._context = context
        self._controller = controller
        self._registered = registered
        self._one_at_a_time = asyncio.Lock()

    async def reload(self, *, by: OperatorName) -> Reloaded:
        """See `ConfigurationRequests.reload`."""
        async with self._one_at_a_time:
            try:
                return await self._reload(by)
            except RefusedConfigurationError as error:
                _log.error("configuration_not_reloaded", by=by, problems=list(error.problems))
                raise

    async def plan_against(self, content: bytes) -> PlanAgainst:
        """See `ConfigurationRequests.plan_against`."""
        async with self._one_at_a_time:
            new = await asyncio.to_thread(self._load, content)
            _refuse_many_ready(new)
            changed, refused = self._compare(new)
            remade = await asyncio.to_thread(self._remade, _without_files(self._in_use, new))
            preview = await self._controller.preview(self._catalogue(new, remade))
        return PlanAgainst(tuple(shown(changed)), tuple(shown(refused)), preview)

    async def _reload(self, by: OperatorName) -> Reloaded:
        new = await asyncio.to_thread(self._load, None)
        changed, refused = self._compare(new)
        if refused:
            problems = (
                new.document.problem(path, "cannot change while the controller runs", RESTART_FIX)
                for path in refused
            )
            raise RefusedConfigurationError([str(one) for one in sorted(problems)])
        remade = await asyncio.to_thread(self._remade, new)
        health_checks = await asyncio.to_thread(health_check_parameters, new)
        # From here to the change of the catalogue nothing else runs.
        self._in_use.configuration = new
        self._in_use.health_checks.clear()
        self._in_use.health_checks.update(health_checks)
        for name, provider in remade.items():
            self._providers[name].use(provider)
        self._use_skus([SkuName(name) for name in new.settings.skus])
        moved = self._controller.change_catalogue(self._catalogue(new, self._providers))
        for warning in new.warnings:
            _log.warning("configuration", problem=str(warning))
        keys = tuple(shown(changed))
        _log.warning("configuration_reloaded", by=by, changed=list(keys), jobs=moved)
        await self._controller.read_providers_again()
        done = "no key has changed; the files of the SKUs were read again"
        if keys:
            done = (
                f"{counted(len(keys), 'change')} in force, {counted(moved, 'job')} with other SKUs"
            )
        return Reloaded(keys, done)

    def _load(self, content: bytes | None) -> config.Configuration:
        """Check fleet.yaml, or this text in its place. Raises RefusedConfigurationError."""
        path, files = self._in_use.configuration.path, content is None
        try:
            return load_for_service(
                path, files=files, try_store=False, providers=self._registered, content=content
            )
        except config.ConfigurationError as error:
            raise RefusedConfigurationError([str(one) for one in error.problems]) from None

    def _compare(self, new: config.Configuration) -> tuple[list[KeyPath], list[KeyPath]]:
        """Return the changed keys that can take effect, and those that need a restart."""
        paths = changed_keys(self._in_use.configuration.settings, new.settings)
        changed = [path for path in paths if takes_effect(path)]
        return changed, [path for path in paths if not takes_effect(path)]

    def _remade(self, new: config.Configuration) -> dict[ProviderName, Provider]:
        """Return the providers with the SKUs of a configuration. Raises RefusedConfigurationError."""
        factories = provider_factories(new, provider_kinds(self._registered))
        try:
            return {
                name: factories[name].remake(guard.provider, self._context)
                for name, guard in self._providers.items()
                if name in factories
            }
        except (OSError, ValueError) as error:
            raise RefusedConfigurationError([f"a provider cannot use it: {error}"]) from None

    def _catalogue(
        self, new: config.Configuration, providers: Mapping[ProviderName, Provider]
    ) -> Catalogue:
        opened = [name for name in self._controller.opened if name in providers]
        return catalogue(new, self._controller.catalogue.installations, opened, providers)


def _refuse_many_ready(new: config.Configuration) -> None:
    """Raise RefusedConfigurationError if a plan could launch too many machines without a job."""
    settings = new.settings
    idle = (sku.idle for sku in settings.skus.values())
    ready = sum(max([one.minimum, *(entry.minimum for entry in one.schedule)]) for one in idle)
    limit = settings.limits.machines
    if ready > MAX_READY and (limit is None or limit > MAX_READY):
        what = f"keep up to {ready} machines ready, and a plan may have {MAX_READY}"
        fix = "lower idle.min and the minimums of schedules, or set limits.machines"
        raise RefusedConfigurationError([str(new.document.problem(("skus",), what, fix))])


def _without_files(in_use: InUse, new: config.Configuration) -> config.Configuration:
    """Return a configuration of which nothing reads a file: who sends it must not choose what is read."""
    settings = new.settings
    skus = {
        name: sku.model_copy(update={"boot_script_file": None})
        for name, sku in settings.skus.items()
    }
    server = in_use.configuration.settings.server
    changed = settings.model_copy(update={"skus": skus, "server": server})
    return config.Configuration(new.path, changed, new.warnings, new.document)
