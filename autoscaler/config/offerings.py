"""Decides whether what the ladders ask of EC2 is known there, by what a provider's room knows.

Knows no instance type and no quota itself: the composition root passes in who does.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from autoscaler.config.load import Configuration
from autoscaler.config.problems import Problem, listed, nearest, show
from autoscaler.config.settings import Ec2Settings, Settings
from autoscaler.config.sku_settings import SkuSettings
from autoscaler.model.catalogue import Architecture, OperatingSystem


class TypeCheck(Protocol):
    """Why an instance type cannot be offered at a provider for a system, or None when it can."""

    def __call__(
        self, instance_type: str, os: OperatingSystem, arch: Architecture, ec2: Ec2Settings
    ) -> tuple[str, str] | None:
        """A short sentence that names the type, and the fix."""


def validate_offerings(
    configuration: Configuration,
    check: TypeCheck,
    families: Collection[str],
    apis: Mapping[str, Collection[str]] | None = None,
) -> tuple[Problem, ...]:
    """What EC2 does not have, with its line: types at a price, quotas, APIs.

    `families` are those of quotas, `apis` the names that each key for buckets takes.
    """
    settings = configuration.settings
    problems = [
        configuration.document.problem(path, what, fix)
        for name, sku in settings.skus.items()
        for path, what, fix in _types(settings, name, sku, check)
    ]
    problems += _buckets(configuration, apis or {})
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


def _buckets(
    configuration: Configuration, apis: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    for provider, place in configuration.settings.providers.items():
        for key, known in apis.items() if place.ec2 else ():
            for api in sorted(set(getattr(place.ec2, key)) - set(known)):
                meant = nearest(api, known)
                fix = f"did you mean {meant}?" if meant else f"write {listed(sorted(known))}"
                path = ("providers", provider, "ec2", key, api)
                what = f"{show(api)} is no API that is used with this limit"
                yield configuration.document.problem(path, what, fix)


def _types(
    settings: Settings, name: str, sku: SkuSettings, check: TypeCheck
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    for index, rung in enumerate(sku.ladder):
        ec2 = settings.providers[rung.provider].ec2
        if ec2 is None:
            continue
        for position, instance_type in enumerate(rung.instance_types or ()):
            problem = check(instance_type, sku.os, sku.arch, ec2)
            if problem is not None:
                yield ("skus", name, "on", index, "instance_types", position), *problem
