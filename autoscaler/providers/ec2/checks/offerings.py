"""Checks the instance types, quotas and APIs in fleet.yaml against what EC2 has.

Reads the file as written, like `config.checks`, so that one error hides no other.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autoscaler.config import shapes
from autoscaler.config.document import Document, Node
from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.config.sku_settings import AcceleratorVendor
from autoscaler.config.values import valid
from autoscaler.model.catalogue import Architecture, OperatingSystem
from autoscaler.model.wording import counted
from autoscaler.providers.ec2 import instance_types
from autoscaler.providers.ec2.checks.contradictions import KEY
from autoscaler.providers.ec2.configuration import Quota, Region
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


def offering_problems(document: Document) -> tuple[Problem, ...]:
    """Return errors for instance types, quotas and APIs that the project's table does not have."""
    quotas = instance_types.quota_names()
    apis = {"request_buckets": OPERATIONS, "resource_buckets": RESOURCE_BUCKETS}
    return validate_offerings(document, _type_problem, quotas, apis)


def validate_offerings(
    document: Document,
    check: TypeCheck,
    families: Collection[str],
    apis: Mapping[str, Collection[str]] | None = None,
) -> tuple[Problem, ...]:
    """Return an error for each type, quota and API that EC2 does not have.

    `families` are quota families and quotas of their own (`spot/P5`). `apis` are the valid names for each
    key of buckets.
    """
    found = [
        *_types(document, check),
        *_accelerators(document),
        *_quotas(document, families),
        *_buckets(document, apis or {}),
    ]
    return tuple(sorted(found))


def _quotas(document: Document, families: Collection[str]) -> Iterator[Problem]:
    for provider, ec2 in sections_of(document, KEY):
        quotas = ec2.child("quotas")
        for quota, _ in quotas.entries() if quotas else ():
            family = quota.rpartition("/")[2]
            if family in families or quota in families or not _is(Quota, quota):
                continue
            path = ("providers", provider, KEY, "quotas", quota)
            yield document.problem(
                path, f"{show(family)} is not a quota family", _fix(family, families)
            )


def _buckets(document: Document, apis: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    for provider, ec2 in sections_of(document, KEY):
        for key, known in apis.items():
            buckets = ec2.child(key)
            for api, _ in buckets.entries() if buckets else ():
                if api not in known and _is(shapes.Name, api):
                    path = ("providers", provider, KEY, key, api)
                    what = f"{show(api)} is not an API with this limit"
                    yield document.problem(path, what, _fix(api, known))


def _is(shape: Any, key: str) -> bool:
    return valid(Node(1, key), shape) is not None


def _fix(word: str, known: Collection[str]) -> str:
    meant = nearest(word, known)
    return f"did you mean {meant}?" if meant else f"write {listed(sorted(known))}"


def _types(document: Document, check: TypeCheck) -> Iterator[Problem]:
    skus = document.root.child("skus")
    for name, sku in skus.entries() if skus else ():
        os = valid(sku, OperatingSystem, "os") or OperatingSystem.LINUX
        arch = valid(sku, Architecture, "arch") if sku.child("arch") else Architecture.X64
        launch_options = sku.child("on")
        for index, option in launch_options.items() if launch_options else ():
            place = _place(document, option)
            for position, node in _named_types(option) if place is not None else ():
                path: KeyPath = ("skus", name, "on", index, "instance_types", position)
                kind = valid(node, shapes.InstanceType)
                problem = check(kind, os, arch, place) if kind is not None and place else None
                if problem is not None:
                    yield document.problem(path, *problem)


def _accelerators(document: Document) -> Iterator[Problem]:
    """Check that each instance type has the GPUs that its SKU's machines must have."""
    for name, sku, index, option in options_of(document, KEY):
        count = valid(sku, shapes.Positive, "accelerator", "count")
        vendor = valid(sku, AcceleratorVendor, "accelerator", "vendor")
        for position, node in _named_types(option):
            found = instance_types.instance_types().get(str(node.value))
            # The table counts none for the types that have a part of a GPU, such as g6f.
            if found is None or (found.gpu_name and not found.gpu_count):
                continue
            path: KeyPath = ("skus", name, "on", index, "instance_types", position)
            if count not in (None, found.gpu_count):
                gpus = counted(found.gpu_count, "GPU") if found.gpu_count else "no GPU"
                what = f"{found.name} has {gpus}, and accelerator.count is {count}"
                fix = "name another type, or correct accelerator.count"
                yield document.problem(path, what, fix)
            if found.gpu_count and vendor not in (None, found.gpu_maker):
                what = f"{found.name} has GPUs of {found.gpu_maker}, and accelerator.vendor is {vendor}"
                fix = "name another type, or correct accelerator.vendor"
                yield document.problem(path, what, fix)


def _named_types(option: Node) -> Iterator[tuple[int, Node]]:
    types = option.child("instance_types")
    return types.items() if types else iter(())


def _place(document: Document, option: Node) -> Place | None:
    """Return the place of a launch option, as far as the file has it; None if it is not on EC2."""
    name = valid(option, shapes.Name, "provider")
    provider = document.root.get("providers", name) if name is not None else None
    ec2 = provider.child(KEY) if provider is not None else None
    if provider is None or (ec2 is None and not provider.value):
        return Place()
    if ec2 is None:
        return None
    prices = ec2.child("prices")
    # `settings` reports an invalid price. Its value is not needed here.
    known = {one: valid(node, shapes.Dollars) or 0.0 for one, node in (prices or Node(1)).entries()}
    return Place(valid(ec2, Region, "region"), known)


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
