"""Checks the amounts of resources in fleet.yaml, those of overlays included. Reads the file as written.

Reports amounts that Kubernetes refuses, or takes for something else than was meant.
Sources: Kubernetes API reference, "Quantity" (larger values are capped at 2^63 - 1);
`pkg/apis/core/v1/defaults.go` (amounts are rounded up to thousandths); `pkg/apis/core/validation/validation.go`
(resources of containers, multiples of huge pages, whole numbers of extended resources, sizes of claims).
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from autoscaler.config.document import Document, Node
from autoscaler.config.problems import KeyPath, Problem, nearest, show
from autoscaler.config.provider_kind import options_of
from autoscaler.providers.kubernetes.checks.contradictions import KEY, RESOURCES
from autoscaler.providers.kubernetes.values.quantities import quantity

STORAGE = "storage"
"""The resource of a volume claim."""

_BYTES = ("memory", "ephemeral-storage", STORAGE)
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_MOST = Decimal(2**63 - 1)
_LEAST_BYTES = Decimal(2**20)
"""Less than a mebibyte is a forgotten unit: no program runs with so little memory or disk."""

_SHARED: KeyPath = ("shared_memory",)
_VOLUME: KeyPath = ("container_mode", "kubernetes", "work_volume", "size")


class Wrong(NamedTuple):
    """What is wrong with an amount, and what to write."""

    what: str
    fix: str


def contradictions(document: Document) -> Iterator[Problem]:
    """Return the amounts that the API server refuses, or counts otherwise than meant."""
    for name, _, index, option in options_of(document, KEY):
        pod = option.child("pod")
        if pod is None:
            continue
        path: KeyPath = ("skus", name, "on", index, "pod")
        for keys in RESOURCES:
            yield from _resources(document, (*path, *keys), pod.get(*keys), typed=True)
        for key in (_SHARED, _VOLUME):
            yield from _size(document, (*path, *key), pod.get(*key))
        yield from _overlay(document, (*path, "overlay", "spec"), pod.get("overlay", "spec"))


def _overlay(document: Document, path: KeyPath, spec: Node | None) -> Iterator[Problem]:
    for kind in ("initContainers", "containers"):
        containers = spec.child(kind) if spec is not None else None
        for index, container in containers.items() if containers is not None else ():
            for part in ("requests", "limits"):
                keys = (kind, index, "resources", part)
                yield from _resources(
                    document, (*path, *keys), container.get("resources", part), typed=False
                )


def _resources(
    document: Document, path: KeyPath, found: Node | None, *, typed: bool
) -> Iterator[Problem]:
    """Yield wrong names and amounts. `typed`: the settings' types report what is no quantity."""
    for resource, node in found.entries() if found is not None else ():
        if typed and not _is_quantity(node.value):
            continue
        # `null` removes the resource from the pod.
        wrong = None if node.value is None else _wrong_amount(resource, node.plain())
        yield from _problem(document, (*path, resource), _wrong_resource(resource) or wrong)


def _size(document: Document, path: KeyPath, size: Node | None) -> Iterator[Problem]:
    if size is not None and _is_quantity(size.value):
        yield from _problem(document, path, _wrong_amount(STORAGE, size.value))


def _is_quantity(value: object) -> bool:
    try:
        quantity(value)
    except ValueError:
        return False
    return isinstance(value, str)


def _problem(document: Document, path: KeyPath, wrong: Wrong | None) -> Iterator[Problem]:
    if wrong is not None:
        yield document.problem(path, wrong.what, wrong.fix)


def _wrong_resource(resource: str) -> Wrong | None:
    """Return why a container cannot have a resource of this name, or None."""
    if "/" in resource or resource in _OF_CONTAINERS or resource.startswith(_HUGE_PAGES):
        return None
    meant = nearest(resource, _OF_CONTAINERS)
    fix = f"did you mean {meant}?" if meant else f"write {', '.join(_OF_CONTAINERS)} or DOMAIN/NAME"
    return Wrong(f"{show(resource)} is not a resource of containers", fix)


def _wrong_amount(resource: str, value: object) -> Wrong | None:
    """Return why an amount of a resource cannot be meant, or None. `resource` may be `STORAGE`."""
    try:
        found = quantity(value)
    except ValueError:
        return Wrong(f"{show(value)} is not a quantity", 'write one such as "4", 500m or 56Gi')
    if found * (1000 if resource == "cpu" else 1) > _MOST:
        return Wrong(f"{show(value)} is more than Kubernetes can count", "write a smaller one")
    if resource == "cpu":
        if 0 < found < Decimal("0.001"):
            what = f"{show(value)} is less than 1m, the least that Kubernetes counts"
            return Wrong(what, 'write one such as "4" or 500m')
        return None
    if resource.startswith(_HUGE_PAGES):
        return _wrong_huge_pages(resource, value, found)
    if resource in _BYTES:
        return _wrong_bytes(resource, value, found)
    if found != int(found):
        what = f"{show(value)} is not a whole number, and {show(resource)} is counted in these"
        return Wrong(what, 'write one such as "1"')
    return None


def _wrong_bytes(resource: str, value: object, found: Decimal) -> Wrong | None:
    text = str(value).strip()
    if text.endswith("m"):
        what = f"{show(value)} is {found:f} bytes: m means thousandths"
        return Wrong(what, f"write {text[:-1]}Mi")
    # A limit of 0 is none. A volume needs a size.
    if found < _LEAST_BYTES and (found or resource == STORAGE):
        return Wrong(f"{show(value)} is only {found:f} bytes", "write a unit, such as 64Mi or 20Gi")
    return None


def _wrong_huge_pages(resource: str, value: object, found: Decimal) -> Wrong | None:
    size = resource.removeprefix(_HUGE_PAGES)
    try:
        page = quantity(size)
    except ValueError:
        page = Decimal(0)
    if not page:
        what = f"{show(size)} is not the size of a page"
        return Wrong(what, "write hugepages-2Mi or hugepages-1Gi")
    if found % page:
        what = f"{show(value)} is not a multiple of the page size {size}"
        return Wrong(what, f"write one such as {size}")
    return None
