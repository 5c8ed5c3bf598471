"""Checks the amounts of resources in fleet.yaml, those of overlays included.

Reports amounts that Kubernetes refuses, or takes for something else than was meant.
Sources: Kubernetes API reference, "Quantity" (larger values are capped at 2^63 - 1);
`pkg/apis/core/v1/defaults.go` (amounts are rounded up to thousandths); `pkg/apis/core/validation/validation.go`
(resources of containers, multiples of huge pages, whole numbers of extended resources, sizes of claims).
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, nearest, show
from autoscaler.providers.kubernetes.checks.contradictions import (
    PodOf,
    pod_of,
    pods_of,
    resources_of,
)
from autoscaler.providers.kubernetes.values.quantities import quantity

STORAGE = "storage"
"""The resource of a volume claim."""

_BYTES = ("memory", "ephemeral-storage", STORAGE)
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_MOST = Decimal(2**63 - 1)
_LEAST_BYTES = Decimal(2**20)
"""Less than a mebibyte is a forgotten unit: no program runs with so little memory or disk."""


Wrong = tuple[str, str]
"""What is wrong with an amount, and what to write."""


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return the amounts that the API server refuses, or counts otherwise than meant."""
    checks = (_own, _shared_memory, _work_volume, _overlay)
    for one in pods_of(configuration):
        yield from run_checks(checks, configuration, one)


def _own(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    for keys, resources in resources_of(pod_of(one)):
        yield from _resources(configuration, (*one.path, "pod", *keys), resources)


def _shared_memory(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    size = pod_of(one).shared_memory
    if size is not None:
        path = (*one.path, "pod", "shared_memory")
        yield from _problem(configuration, path, _wrong_amount(STORAGE, size))


def _work_volume(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    hooks = pod_of(one).hooks
    volume = hooks.work_volume if hooks is not None else None
    if volume is not None:
        path = (*one.path, "pod", "container_mode", "kubernetes", "work_volume", "size")
        yield from _problem(configuration, path, _wrong_amount(STORAGE, volume.size))


def _overlay(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    spec = _below(pod_of(one).overlay, "spec")
    path = (*one.path, "pod", "overlay", "spec")
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            for part in ("requests", "limits"):
                found = _below(_below(container, "resources"), part)
                keys = (kind, index, "resources", part)
                yield from _resources(configuration, (*path, *keys), found)


def _below(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _resources(
    configuration: Configuration, path: KeyPath, resources: Mapping[str, Any]
) -> Iterator[Problem]:
    for resource, amount in resources.items():
        # `null` in an overlay removes the resource from the pod.
        wrong = None if amount is None else _wrong_amount(resource, amount)
        yield from _problem(configuration, (*path, resource), _wrong_resource(resource) or wrong)


def _problem(configuration: Configuration, path: KeyPath, wrong: Wrong | None) -> Iterator[Problem]:
    if wrong is not None:
        yield configuration.error(path, *wrong)


def _wrong_resource(resource: str) -> Wrong | None:
    """Return why a container cannot have a resource of this name, or None."""
    if "/" in resource or resource in _OF_CONTAINERS or resource.startswith(_HUGE_PAGES):
        return None
    meant = nearest(resource, _OF_CONTAINERS)
    fix = f"did you mean {meant}?" if meant else f"write {', '.join(_OF_CONTAINERS)} or DOMAIN/NAME"
    return (f"{show(resource)} is not a resource of containers", fix)


def _wrong_amount(resource: str, value: object) -> Wrong | None:
    """Return why an amount of a resource cannot be meant, or None. `resource` may be `STORAGE`."""
    try:
        found = quantity(value)
    except ValueError:
        return (f"{show(value)} is not a quantity", 'write one such as "4", 500m or 56Gi')
    if found * (1000 if resource == "cpu" else 1) > _MOST:
        return (f"{show(value)} is more than Kubernetes can count", "write a smaller one")
    if resource == "cpu":
        if 0 < found < Decimal("0.001"):
            what = f"{show(value)} is less than 1m, the least that Kubernetes counts"
            return (what, 'write one such as "4" or 500m')
        return None
    if resource.startswith(_HUGE_PAGES):
        return _wrong_huge_pages(resource, value, found)
    if resource in _BYTES:
        return _wrong_bytes(resource, value, found)
    if found != int(found):
        what = f"{show(value)} is not a whole number, and {show(resource)} is counted in these"
        return (what, 'write one such as "1"')
    return None


def _wrong_bytes(resource: str, value: object, found: Decimal) -> Wrong | None:
    text = str(value).strip()
    if text.endswith("m"):
        what = f"{show(value)} is {found:f} bytes: m means thousandths"
        return (what, f"write {text[:-1]}Mi")
    # A limit of 0 is none. A volume needs a size.
    if found < _LEAST_BYTES and (found or resource == STORAGE):
        return (f"{show(value)} is only {found:f} bytes", "write a unit, such as 64Mi or 20Gi")
    return None


def _wrong_huge_pages(resource: str, value: object, found: Decimal) -> Wrong | None:
    size = resource.removeprefix(_HUGE_PAGES)
    try:
        page = quantity(size)
    except ValueError:
        page = Decimal(0)
    if not page:
        what = f"{show(size)} is not the size of a page"
        return (what, "write hugepages-2Mi or hugepages-1Gi")
    if found % page:
        what = f"{show(value)} is not a multiple of the page size {size}"
        return (what, f"write one such as {size}")
    return None
