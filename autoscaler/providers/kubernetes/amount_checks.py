"""Checks the amounts of resources in fleet.yaml, those of overlays included. Reads the file as written."""

from collections.abc import Iterator

from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.provider_kind import options_of
from autoscaler.config.reading.document import Document, Node
from autoscaler.providers.kubernetes.amounts import STORAGE, Wrong, wrong_amount, wrong_resource
from autoscaler.providers.kubernetes.file_checks import KEY, RESOURCES
from autoscaler.providers.kubernetes.quantities import quantity

_SHARED: KeyPath = ("shared_memory",)
_VOLUME: KeyPath = ("container_mode", "kubernetes", "work_volume", "size")


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
        wrong = None if node.value is None else wrong_amount(resource, node.plain())
        yield from _problem(document, (*path, resource), wrong_resource(resource) or wrong)


def _size(document: Document, path: KeyPath, size: Node | None) -> Iterator[Problem]:
    if size is not None and _is_quantity(size.value):
        yield from _problem(document, path, wrong_amount(STORAGE, size.value))


def _is_quantity(value: object) -> bool:
    try:
        quantity(value)
    except ValueError:
        return False
    return isinstance(value, str)


def _problem(document: Document, path: KeyPath, wrong: Wrong | None) -> Iterator[Problem]:
    if wrong is not None:
        yield document.problem(path, wrong.what, wrong.fix)
