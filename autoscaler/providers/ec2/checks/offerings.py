"""Checks the instance types, quotas and APIs in fleet.yaml against what EC2 has."""

import re
from collections.abc import Collection, Iterator

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.provider_kind import OptionOf, options_of, sections_of
from autoscaler.config.settings.sku import AcceleratorVendor, SkuSettings
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.model.wording import counted
from autoscaler.providers.ec2 import instance_types
from autoscaler.providers.ec2.configuration import KEY, Ec2OptionKeys, Ec2Section
from autoscaler.providers.ec2.worker.operations import OPERATIONS
from autoscaler.providers.ec2.worker.throttle import RESOURCE_BUCKETS

_WORDS = re.compile("[a-z0-9]+")


def offering_problems(configuration: Configuration) -> tuple[Problem, ...]:
    """Return an error for each type, quota and API that EC2 does not have."""
    found: list[Problem] = []
    for name, sku in configuration.skus():
        for index, option in enumerate(getattr(sku, "launch_options", ())):
            if isinstance(option, Ec2OptionKeys):
                path = ("skus", name, "on", index, "instance_types")
                found += run_checks((_types,), configuration, path, sku, option)
    for one in options_of(configuration, Ec2Section, Ec2OptionKeys):
        found += run_checks((_counts, _vendors, _memory, _models), configuration, one)
    for name, ec2 in sections_of(configuration, Ec2Section):
        found += run_checks(
            (_prices, _quotas, _request_buckets, _resource_buckets), configuration, name, ec2
        )
    return tuple(sorted(found))


def _prices(configuration: Configuration, name: str, ec2: Ec2Section) -> Iterator[Problem]:
    known = instance_types.instance_types()
    for priced in ec2.prices:
        if priced not in known:
            path = ("providers", name, KEY, "prices", priced)
            meant = nearest(priced, known)
            fix = f"did you mean {meant}?" if meant else "remove it: it has no effect"
            yield configuration.error(path, f"instance type {priced} is not known", fix)


def _quotas(configuration: Configuration, name: str, ec2: Ec2Section) -> Iterator[Problem]:
    families = instance_types.quota_names()
    for quota in ec2.quotas:
        family = quota.rpartition("/")[2]
        if family not in families and quota not in families:
            path = ("providers", name, KEY, "quotas", quota)
            what = f"{show(family)} is not a quota family"
            yield configuration.error(path, what, _fix(family, families))


def _request_buckets(configuration: Configuration, name: str, ec2: Ec2Section) -> Iterator[Problem]:
    path = ("providers", name, KEY, "request_buckets")
    yield from _apis(configuration, path, ec2.request_buckets, OPERATIONS)


def _resource_buckets(
    configuration: Configuration, name: str, ec2: Ec2Section
) -> Iterator[Problem]:
    path = ("providers", name, KEY, "resource_buckets")
    yield from _apis(configuration, path, ec2.resource_buckets, RESOURCE_BUCKETS)


def _apis(
    configuration: Configuration, path: KeyPath, named: Collection[str], known: Collection[str]
) -> Iterator[Problem]:
    for api in named:
        if api not in known:
            what = f"{show(api)} is not an API with this limit"
            yield configuration.error((*path, api), what, _fix(api, known))


def _fix(word: str, known: Collection[str]) -> str:
    meant = nearest(word, known)
    return f"did you mean {meant}?" if meant else f"write {listed(sorted(known))}"


def _types(
    configuration: Configuration, path: KeyPath, sku: SkuSettings, option: Ec2OptionKeys
) -> Iterator[Problem]:
    """Check the types, also of an option whose provider is unknown or has no valid region."""
    provider = getattr(option, "provider", "")
    ec2 = dict(sections_of(configuration, Ec2Section)).get(provider)
    if ec2 is None and provider in dict(configuration.providers()):
        return  # not on EC2
    for index, name in enumerate(option.instance_types or ()):
        problem = _type_problem(name, sku, ec2)
        if problem is not None:
            yield configuration.error((*path, index), *problem)


def _type_problem(name: str, sku: SkuSettings, ec2: Ec2Section | None) -> tuple[str, str] | None:
    known = instance_types.instance_types()
    region, arch = getattr(ec2, "region", None), getattr(sku, "arch", None)
    try:
        found = instance_types.instance_type(name)
        if region is not None:
            prices = instance_types.Prices(region, getattr(ec2, "prices", {}))
            found.dollars_per_hour(getattr(sku, "os", OperatingSystem.LINUX), prices)
    except instance_types.InstanceTypeError as error:
        meant = nearest(name, known) if name not in known else None
        return error.what, error.fix if meant is None else f"did you mean {meant}?"
    if arch is None or found.arch is arch:
        return None
    what = f"{name} is {found.arch}, the SKU is {arch}"
    return what, f"write arch: {found.arch} in the SKU, or name another type"


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


def _memory(
    configuration: Configuration, one: OptionOf[Ec2Section, Ec2OptionKeys]
) -> Iterator[Problem]:
    """Check that the GPUs of each instance type have as much memory as its SKU's machines must have."""
    least = one.sku.accelerator.memory_gb if one.sku.accelerator is not None else None
    for index, found in _known_types(one.option):
        memory = instance_types.gpu_memory_gib(found.name)
        if least is not None and memory is not None and least > memory:
            what = f"a GPU of {found.name} has at most {memory} GiB, and accelerator.memory_gb is {least}"
            fix = "name another type, or lower accelerator.memory_gb"
            yield configuration.error((*one.path, "instance_types", index), what, fix)


def _models(
    configuration: Configuration, one: OptionOf[Ec2Section, Ec2OptionKeys]
) -> Iterator[Problem]:
    """Warn of types whose GPUs look like none of the models: the spelling of a new model may differ."""
    models = one.sku.accelerator.models if one.sku.accelerator is not None else None
    for index, found in _known_types(one.option):
        words = set(found.gpu_name.split("-"))
        if not models or found.gpu_maker != AcceleratorVendor.NVIDIA:
            continue
        if not any(words <= set(_WORDS.findall(model.lower())) for model in models):
            what = (
                f"{found.name} has {found.gpu_name.upper()}, which accelerator.models does not name"
            )
            fix = "name another type, or add the model as nvidia-smi -L prints it"
            yield configuration.warning((*one.path, "instance_types", index), what, fix)


def _known_types(option: Ec2OptionKeys) -> Iterator[tuple[int, instance_types.InstanceType]]:
    """Return the types in the table, except those with a part of a GPU (g6f), of which it counts none."""
    for index, name in enumerate(option.instance_types or ()):
        found = instance_types.instance_types().get(name)
        if found is not None and (found.gpu_count or not found.gpu_name):
            yield index, found
