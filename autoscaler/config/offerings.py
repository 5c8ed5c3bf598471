"""Decides whether what the ladders ask of EC2 is known there, by what a provider's room knows.

Knows no instance type and no quota itself: the composition root passes in who does.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from autoscaler.config.load import Configuration
from autoscaler.config.problems import Problem, listed, nearest, show
from autoscaler.config.settings import Settings
from autoscaler.config.sku_settings import SkuSettings
from autoscaler.model.catalogue import Architecture, OperatingSystem


class TypeCheck(Protocol):
    """Why an instance type cannot be offered for a system, or None when it can.

    `prices` are the provider's own, Linux dollars an hour by type, before any table.
    """

    def __call__(
        self,
        instance_type: str,
        os: OperatingSystem,
        arch: Architecture,
        prices: Mapping[str, float],
    ) -> str | None:
        """A short sentence that names the type."""


def validate_offerings(
    configuration: Configuration, check: TypeCheck, families: Collection[str]
) -> tuple[Problem, ...]:
    """Instance types that cannot be offered, and quotas of no family, with their lines."""
    settings = configuration.settings
    problems = [
        configuration.document.problem(path, what, "correct it, or see prices of the provider")
        for name, sku in settings.skus.items()
        for path, what in _types(settings, name, sku, check)
    ]
    for provider, place in settings.providers.items():
        for quota in place.ec2.quotas if place.ec2 else ():
            family = quota.rpartition("/")[2]
            if family in families:
                continue
            meant = nearest(family, families)
            fix = f"did you mean {meant}?" if meant else f"write {listed(sorted(families))}"
            path = ("providers", provider, "ec2", "quotas", quota)
            what = f"{show(family)} is no quota family"
            problems.append(configuration.document.problem(path, what, fix))
    return tuple(sorted(problems))


def _types(
    settings: Settings, name: str, sku: SkuSettings, check: TypeCheck
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, rung in enumerate(sku.ladder):
        ec2 = settings.providers[rung.provider].ec2
        if ec2 is None:
            continue
        for position, instance_type in enumerate(rung.instance_types or ()):
            what = check(instance_type, sku.os, sku.arch, ec2.prices)
            if what is not None:
                yield ("skus", name, "on", index, "instance_types", position), what
