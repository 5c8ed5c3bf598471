"""Applies a changed fleet.yaml, and previews what one would do.

Reading and checking run in a thread, because a large file takes a second. What the controller uses changes in
one step of the event loop, between two plans.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    PlanInProgressError,
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

Remake = Callable[[Provider], Provider]
"""Makes a provider with other SKUs from a running one: see `ProviderFactory.remake`."""

MAX_READY = 20_000
"""Maximum number of ready machines in a file to plan with. The event loop makes the plan."""

MAX_PLANNED_SKUS = 200
"""Maximum number of SKUs in a file to plan with."""

MAX_OFFERINGS = 3000
"""Maximum number of offerings in a file to plan with. The planner may look at each of them."""

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

    async def change_catalogue(
        self, changed: Catalogue, by: OperatorName, keys: Sequence[str]
    ) -> int:
        """Use another catalogue before the first await. Return how many jobs have other SKUs since.

        On return, the history has who (`by`) changed which keys. Raises: StoreError.
        """

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
        self._one_reload_at_a_time = asyncio.Lock()
        self._reloads: set[asyncio.Task[Reloaded]] = set()
        self._planning: asyncio.Task[PlanAgainst] | None = None

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
        new = await asyncio.to_thread(self._load_sent, content)
        changed, refused = await asyncio.to_thread(self._compare, new)
        reloaded = await asyncio.to_thread(_as_reloaded, self._in_use.configuration, new)
        remakes = await asyncio.to_thread(self._remakes, reloaded)
        remade = self._remade(remakes)
        found = await asyncio.to_thread(self._catalogue, reloaded, remade)
        _refuse_many_offerings(new, found)
        preview = await self._controller.preview(found)
        return PlanAgainst(tuple(shown(changed)), tuple(shown(refused)), preview)

    async def _reload_alone(self, by: OperatorName) -> Reloaded:
        async with self._one_reload_at_a_time:
            try:
                return await self._reload(by)
            except RefusedConfigurationError as error:
                _log.error("configuration_not_reloaded", by=by, problems=list(error.problems))
                raise

    async def _reload(self, by: OperatorName) -> Reloaded:
        new = await asyncio.to_thread(self._load, None)
        changed, refused = await asyncio.to_thread(self._compare, new)
        if refused:
            problems = (
                new.document.problem(path, "cannot change while the controller runs", RESTART_FIX)
                for path in refused
            )
            raise RefusedConfigurationError([str(one) for one in sorted(problems)])
        health_checks = await asyncio.to_thread(_health_checks, new)
        remakes = await asyncio.to_thread(self._remakes, new)
        # From here to the change of the catalogue nothing else runs.
        remade = self._remade(remakes)
        self._in_use.configuration = new
        self._in_use.health_checks.clear()
        self._in_use.health_checks.update(health_checks)
        for name, provider in remade.items():
            self._providers[name].use(provider)
        self._use_skus([SkuName(name) for name in new.settings.skus])
        keys = tuple(shown(changed))
        moved = await self._controller.change_catalogue(
            self._catalogue(new, self._providers), by, keys
        )
        for warning in new.warnings:
            _log.warning("configuration_warning", problem=str(warning))
        _log.warning("configuration_reloaded", by=by, changed=list(keys), jobs=moved)
        await self._controller.read_providers_again()
        done = "no key changed; reread boot scripts and versions_file"
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

    def _load_sent(self, content: bytes) -> config.Configuration:
        """Check a text that is to be planned with. Raises RefusedConfigurationError."""
        new = self._load(content)
        _refuse_many_skus(new)
        _refuse_many_ready(new)
        return new

    def _compare(self, new: config.Configuration) -> tuple[list[KeyPath], list[KeyPath]]:
        """Return the changed keys that can take effect, and those that need a restart."""
        paths = changed_keys(self._in_use.configuration.settings, new.settings)
        changed = [path for path in paths if takes_effect(path)]
        return changed, [path for path in paths if not takes_effect(path)]

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
            return {name: make(self._providers[name].provider) for name, make in remakes.items()}
        except ValueError as error:
            raise RefusedConfigurationError([f"a provider cannot use it: {error}"]) from None

    def _catalogue(
        self, new: config.Configuration, providers: Mapping[ProviderName, Provider]
    ) -> Catalogue:
        opened = [name for name in self._controller.opened if name in providers]
        return catalogue(new, self._controller.catalogue.installations, opened, providers)


def _refuse_many_skus(new: config.Configuration) -> None:
    """Raise RefusedConfigurationError if a plan would have to match jobs with too many SKUs."""
    count = len(new.settings.skus)
    if count > MAX_PLANNED_SKUS:
        what = f"has {count} SKUs, and a plan may have {MAX_PLANNED_SKUS}"
        fix = "leave out SKUs that have no jobs now"
        raise RefusedConfigurationError([str(new.document.problem(("skus",), what, fix))])


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


def _refuse_many_offerings(new: config.Configuration, found: Catalogue) -> None:
    """Raise RefusedConfigurationError if a plan may have to look at too many offerings."""
    options = [option for sku in found.skus.values() for option in sku.launch_options]
    count = sum(len(option.offerings) for option in options)
    if count > MAX_OFFERINGS:
        what = (
            f"have {count} offerings (instance types in zones), and a plan may have {MAX_OFFERINGS}"
        )
        fix = "leave out SKUs that have no jobs now, or name fewer instance_types"
        raise RefusedConfigurationError([str(new.document.problem(("skus",), what, fix))])


def _health_checks(new: config.Configuration) -> dict[SkuName, dict[str, Any]]:
    """Return the parameters of each SKU's health checks. Raises RefusedConfigurationError."""
    try:
        return health_check_parameters(new)
    except config.ConfigurationError as error:
        raise RefusedConfigurationError([str(one) for one in error.problems]) from None


def _as_reloaded(in_use: config.Configuration, new: config.Configuration) -> config.Configuration:
    """Return the configuration in use with the keys of a sent one that a reload would apply.

    No file that the sent one names is read. Raises RefusedConfigurationError.
    """
    before, sent = in_use.settings, new.settings
    for name in before.providers.keys() & sent.providers.keys():
        if before.providers[name].kind != sent.providers[name].kind:
            what = "is of another kind than the running provider"
            problem = new.document.problem(("providers", name), what, RESTART_FIX)
            raise RefusedConfigurationError([str(problem)])
    skus = {
        name: sku.model_copy(update={"boot_script_file": None}) for name, sku in sent.skus.items()
    }
    github = before.github.model_copy(update={"registrations": sent.github.registrations})
    # A SKU may name a provider that only the sent file has. Nothing is launched there.
    providers = {**sent.providers, **before.providers}
    changed = before.model_copy(
        update={"skus": skus, "limits": sent.limits, "github": github, "providers": providers}
    )
    return config.Configuration(in_use.path, changed, new.warnings, new.document)
