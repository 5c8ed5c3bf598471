"""Checks the instance types, quotas and APIs in fleet.yaml against what EC2 has."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.provider_kind import OptionOf, options_of, sections_of
from autoscaler.config.settings.sku import SkuSettings
from autoscaler.model.catalogue import Architecture, OperatingSystem
from autoscaler.model.wording import counted
from autoscaler.providers.ec2 import instance_types
from autoscaler.providers.ec2.configuration import KEY, Ec2OptionKeys, Ec2Section
from autoscaler.providers.ec2.worker.operations import OPERATIONS
from autoscaler.providers.ec2.worker.throttle import RESOURCE_BUCKETS


@dataclass(frozen=True, slots=True)
class Place:
    """The inputs of an instance type's price: an EC2 provider's region and its own `prices`.

    `region` is None if the file has no valid region: then the price is not checked.
    """

    region: str | None = None
    prices: Mapping[str, float] = field(default_factory=dict)


class TypeCheck(Protocol):
    """Returns why an instance type cannot be used at a place for a system, or None if it can."""

    def __call__(
        self, instance_type: str, os: OperatingSystem, arch: Architecture | None, place: Place
    ) -> tuple[str, str] | None:
        """Return a short sentence that names the type, and the fix. `arch` None allows any."""


def offering_problems(configuration: Configuration) -> tuple[Problem, ...]:
    """Return errors for instance types, quotas and APIs that the project's table does not have."""
    quotas = instance_types.quota_names()
    apis = {"request_buckets": OPERATIONS, "resource_buckets": RESOURCE_BUCKETS}
    return validate_offerings(configuration, _type_problem, quotas, apis)


def validate_offerings(
    configuration: Configuration,
    check: TypeCheck,
    families: Collection[str],
    apis: Mapping[str, Collection[str]] | None = None,
) -> tuple[Problem, ...]:
    """Return an error for each type, quota and API that EC2 does not have.

    `families` are quota families and quotas of their own (`spot/P5`). `apis` are the valid names for each
    key of buckets.
    """
    found = [*_types(configuration, check)]
    for one in options_of(configuration, Ec2Section, Ec2OptionKeys):
        found += run_checks((_counts, _vendors), configuration, one)
    for name, ec2 in sections_of(configuration, Ec2Section):
        found += run_checks((_quotas,), configuration, name, ec2, families)
        for key, known in (apis or {}).items():
            found += run_checks((_buckets,), configuration, name, ec2, key, known)
    return tuple(sorted(found))


def _quotas(
    configuration: Configuration, name: str, ec2: Ec2Section, families: Collection[str]
) -> Iterator[Problem]:
    for quota in ec2.quotas:
        family = quota.rpartition("/")[2]
        if family not in families and quota not in families:
            path = ("providers", name, KEY, "quotas", quota)
            what = f"{show(family)} is not a quota family"
            yield configuration.error(path, what, _fix(family, families))


def _buckets(
    configuration: Configuration, name: str, ec2: Ec2Section, key: str, known: Collection[str]
) -> Iterator[Problem]:
    for api in getattr(ec2, key):
        if api not in known:
            path = ("providers", name, KEY, key, api)
            what = f"{show(api)} is not an API with this limit"
            yield configuration.error(path, what, _fix(api, known))


def _fix(word: str, known: Collection[str]) -> str:
    meant = nearest(word, known)
    return f"did you mean {meant}?" if meant else f"write {listed(sorted(known))}"


def _types(configuration: Configuration, check: TypeCheck) -> Iterator[Problem]:
    for name, sku in configuration.skus():
        for index, option in enumerate(getattr(sku, "launch_options", ())):
            if isinstance(option, Ec2OptionKeys):
                path = ("skus", name, "on", index, "instance_types")
                yield from run_checks((_types_of,), configuration, path, sku, option, check)


def _types_of(
    configuration: Configuration,
    path: KeyPath,
    sku: SkuSettings,
    option: Ec2OptionKeys,
    check: TypeCheck,
) -> Iterator[Problem]:
    ec2 = dict(sections_of(configuration, Ec2Section)).get(getattr(option, "provider", ""))
    if ec2 is None and getattr(option, "provider", "") in dict(configuration.providers()):
        return  # not on EC2
    place = Place(getattr(ec2, "region", None), getattr(ec2, "prices", {}))
    os, arch = getattr(sku, "os", OperatingSystem.LINUX), getattr(sku, "arch", None)
    for index, name in enumerate(option.instance_types or ()):
        problem = check(name, os, arch, place)
        if problem is not None:
            yield configuration.error((*path, index), *problem)


def _counts(
    configuration: Configuration, one: OptionOf[Ec2Section, Ec2OptionKeys]
) -> Iterator[Problem]:
    """Check that each instance type has as many GPUs as its SKU's machines must have."""
    count = one.sku.accelerator.count if one.sku.accelerator is not None else None
    for index, found in _known_types(one.option):
        if count not in (None, found.gpu_count):
            gpus = counted(found.gpu_count, "GPU") if found.gpu_count else "no GPU"
            what = f"{found.name} has {gpus}, and accelerator.count is {count}"
            fix = "name another type, or correct accelerator.count"
            yield configuration.error((*one.path, "instance_types", index), what, fix)


def _vendors(
    configuration: Configuration, one: OptionOf[Ec2Section, Ec2OptionKeys]
) -> Iterator[Problem]:
    vendor = one.sku.accelerator.vendor if one.sku.accelerator is not None else None
    for index, found in _known_types(one.option):
        if found.gpu_count and vendor not in (None, found.gpu_maker):
            what = f"{found.name} has GPUs of {found.gpu_maker}, and accelerator.vendor is {vendor}"
            fix = "name another type, or correct accelerator.vendor"
            yield configuration.error((*one.path, "instance_types", index), what, fix)


def _known_types(option: Ec2OptionKeys) -> Iterator[tuple[int, instance_types.InstanceType]]:
    """Return the types in the table, except those with a part of a GPU (g6f), of which it counts none."""
    for index, name in enumerate(option.instance_types or ()):
        found = instance_types.instance_types().get(name)
        if found is not None and (found.gpu_count or not found.gpu_name):
            yield index, found


def _type_problem(
    instance_type: str, os: OperatingSystem, arch: Architecture | None, place: Place
) -> tuple[str, str] | None:
    try:
        found = instance_types.instance_type(instance_type)
    except instance_types.InstanceTypeError as error:
        meant = nearest(instance_type, instance_types.instance_types())
        return error.what, error.fix if meant is None else f"did you mean {meant}?"
    try:
        if place.region is not None:
            found.dollars_per_hour(os, instance_types.Prices(place.region, place.prices))
    except instance_types.InstanceTypeError as error:
        return error.what, error.fix
    if arch is None or found.arch is arch:
        return None
    what = f"{found.name} is {found.arch}, the SKU is {arch}"
    return what, f"write arch: {found.arch} in the SKU, or name another type"
