"""Converts Settings into the model's types for its Catalogue.

Sets the defaults that depend on a second key. The caller passes in the launch options, because only
a provider can return their offerings.
"""

from autoscaler.config.checks.unusual_values import own_labels
from autoscaler.config.settings.fleet import ScopeSettings, Settings
from autoscaler.config.settings.sku import Driver, SkuSettings
from autoscaler.model.catalogue import (
    MINUTE,
    Access,
    Deadlines,
    IdlePolicy,
    LaunchOption,
    Limits,
    OperatingSystem,
    RegistrationRate,
    ScheduledMinimum,
    Scope,
    Sku,
)
from autoscaler.model.identifiers import SkuName

WINDOWS_BOOT = 30 * MINUTE
RUNNER_INSTALL = 10 * MINUTE
DRIVER_INSTALL = 35 * MINUTE
"""What the deadline of the health checks has in addition for each installation."""


def scopes(settings: Settings) -> tuple[Scope, ...]:
    """Return the scopes, in the configured order."""
    return tuple(_scope(scope) for scope in settings.github.scopes)


def limits(settings: Settings) -> Limits:
    """Return the fleet's limits, with the quotas of all providers."""
    quotas: dict[str, int] = {}
    for provider, place in settings.providers.items():
        given = place.section.quota_limits()
        quotas |= {f"{provider}/{quota}": units for quota, units in given.items()}
    return Limits(settings.limits.machines, settings.limits.dollars_per_hour, quotas)


def registration_rate(settings: Settings) -> RegistrationRate:
    """Return how fast runners may be registered for one account."""
    rate = settings.github.registrations
    return RegistrationRate(rate.burst, rate.per_second)


def sku(settings: Settings, name: str, launch_options: tuple[LaunchOption, ...]) -> Sku:
    """Return one SKU with its launch options. Raises KeyError if there is no such SKU."""
    found = settings.skus[name]
    return Sku(
        name=SkuName(name),
        labels=own_labels(name, found),
        os=found.os,
        arch=found.arch,
        launch_options=launch_options,
        unlabelled=found.unlabelled,
        max_machines=found.max_machines,
        fair_share=found.fair_share,
        idle=_idle(found),
        deadlines=_deadlines(found),
        lifetime=found.lifetime,
        access=Access(
            found.access.repositories,
            forks=found.access.forks,
            contact=found.access.contact or "",
            public_repositories=found.access.public_repositories,
            branches=found.access.branches,
        ),
        rerun_interrupted=found.rerun_interrupted,
    )


def _scope(scope: ScopeSettings) -> Scope:
    if scope.repo is not None:
        owner, _, repository = scope.repo.partition("/")
        return Scope(owner, repository, scope.runner_group)
    return Scope(scope.org or "", None, scope.runner_group, scope.repositories)


def _idle(found: SkuSettings) -> IdlePolicy:
    return IdlePolicy(
        minimum=found.idle.minimum,
        timeout=found.idle.timeout,
        schedule=tuple(
            ScheduledMinimum(entry.cron, entry.timezone, entry.duration, entry.minimum)
            for entry in found.idle.schedule
        ),
        max_age=found.idle.max_age,
    )


def _deadlines(found: SkuSettings) -> Deadlines:
    usual, given = Deadlines(), found.deadlines
    boot = WINDOWS_BOOT if found.os is OperatingSystem.WINDOWS else usual.boot
    health_checks = usual.health_checks
    if found.stock is not None:
        health_checks += RUNNER_INSTALL
    if found.driver is Driver.INSTALL:
        health_checks += DRIVER_INSTALL
    return Deadlines(
        boot=boot if given.boot is None else given.boot,
        health_checks=health_checks if given.health_checks is None else given.health_checks,
        ready_silence=given.ready_silence,
    )
