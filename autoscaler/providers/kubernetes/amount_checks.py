"""Checks the amounts of resources in fleet.yaml, those of overlays included."""

from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem
from autoscaler.providers.kubernetes.amounts import STORAGE, Wrong, wrong_amount, wrong_resource
from autoscaler.providers.kubernetes.file_checks import PodOf, pods_of, resources_of


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return the amounts that the API server refuses, or counts otherwise than meant."""
    checks = (_own, _shared_memory, _work_volume, _overlay)
    for one in pods_of(configuration):
        if getattr(one.option, "pod", None) is not None:
            yield from run_checks(checks, configuration, one)


def _own(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    for keys, resources in resources_of(one.option.pod) if one.option.pod is not None else ():
        yield from _resources(configuration, (*one.path, "pod", *keys), resources)


def _shared_memory(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    size = one.option.pod.shared_memory if one.option.pod is not None else None
    if size is not None:
        path = (*one.path, "pod", "shared_memory")
        yield from _problem(configuration, path, wrong_amount(STORAGE, size))


def _work_volume(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    mode = one.option.pod.container_mode if one.option.pod is not None else None
    volume = mode.kubernetes.work_volume if mode is not None and mode.kubernetes else None
    if volume is not None:
        path = (*one.path, "pod", "container_mode", "kubernetes", "work_volume", "size")
        yield from _problem(configuration, path, wrong_amount(STORAGE, volume.size))


def _overlay(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    spec = _below(one.option.pod.overlay if one.option.pod is not None else {}, "spec")
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
        wrong = None if amount is None else wrong_amount(resource, amount)
        yield from _problem(configuration, (*path, resource), wrong_resource(resource) or wrong)


def _problem(configuration: Configuration, path: KeyPath, wrong: Wrong | None) -> Iterator[Problem]:
    if wrong is not None:
        yield configuration.error(path, wrong.what, wrong.fix)
