"""Checks the overlays of fleet.yaml: rules that they break, /dev/shm, and fields that no Pod has.

The API server refuses a pod with an unknown field. It may know newer fields than the official client's models,
so only a field that looks like a known one is an error.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, nearest, show
from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.api.kubeconfigs import import_library
from autoscaler.providers.kubernetes.checks.contradictions import PodOf, pod_of, pods_of
from autoscaler.providers.kubernetes.configuration import Pod
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError, overlay_path
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.manifest.shared_memory import FOLDER, too_large
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption, accelerator_of

_NO_COMMAND = ("agent",)

_ROOT: Mapping[str, str] = {"metadata": "V1ObjectMeta", "spec": "V1PodSpec"}

_QUANTITIES = frozenset({"sizeLimit", "divisor"})
"""Fields of the type `str` in the models that may be numbers (Kubernetes API reference, "Quantity")."""


class WrongField(NamedTuple):
    """A field for which the API server refuses the pod. `misspelled`: it looks like another one."""

    path: KeyPath
    what: str
    fix: str
    misspelled: bool = False


def overlay_problems(configuration: Configuration) -> Iterator[Problem]:
    """Yield every fault of each overlay, at its own line. Blocks for the client's import."""
    for one in pods_of(configuration):
        yield from run_checks((_overlay,), configuration, one)


def sample_order(sku: SkuName, option: int) -> LaunchOrder:
    """Return an order for one pod, for checks that create nothing."""
    return LaunchOrder(
        launch_request=LaunchRequestId("check"),
        sku=sku,
        option=option,
        capacity_type=CapacityType.ON_DEMAND,
        offerings=(),
        count=1,
        token="check",  # noqa: S106 - it names the request
    )


def _overlay(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    pod = pod_of(one)
    accelerator = one.sku.accelerator if "accelerator" in one.sku.model_fields_set else None
    own = PodOption(
        sku=SkuName(one.name),
        shape=one.name,
        image=getattr(pod, "image", "image"),
        resources=getattr(pod, "resources", {}),
        shared_memory=getattr(pod, "shared_memory", None),
        accelerator=accelerator_of(accelerator, pod),
        node_selector=getattr(pod, "node_selector", {}),
        container_mode=pod.container_mode,
        overlay=pod.overlay,
    )
    settings = KubernetesSettings(
        name=ProviderName("check"),
        fleet="check",
        installations=Installations(InstallationId("check")),
        namespace="check",
        options={},
        command=_NO_COMMAND,
    )
    path = (*one.path, "pod", "overlay")
    reported: set[KeyPath] = set()
    try:
        template = pod_template(settings, own, sample_order(SkuName(one.name), one.index))
    except OverlayError as error:
        for problem in error.problems:
            place = overlay_path(pod.overlay, problem.partition(": ")[0])
            reported.add(place)
            yield configuration.error((*path, *place), problem, "correct the overlay")
    else:
        yield from _shared_memory(configuration, path[:-1], pod, template)
    for wrong in wrong_fields(pod.overlay) if pod.overlay else ():
        if wrong.misspelled or wrong.path not in reported:
            yield configuration.error((*path, *wrong.path), wrong.what, wrong.fix)


def _shared_memory(
    configuration: Configuration, path: KeyPath, pod: Pod, template: Mapping[str, Any]
) -> Iterator[Problem]:
    """Check that /dev/shm is no larger than the memory of the containers that use it."""
    for one in too_large(template):
        what = (
            f"{one.size} for {FOLDER} is more than the memory limit of container {one.container}, "
        )
        what += f"{one.memory}: its files count against this limit"
        place = overlay_path(pod.overlay, f"spec.volumes[{one.volume}].emptyDir.sizeLimit")
        # Without a size in the overlay, it is the key's: the default is never too large.
        key = ("overlay", *place) if place[-1:] == ("sizeLimit",) else ("shared_memory",)
        yield configuration.error(
            (*path, *key), what, f"write at most {one.memory}, or more memory"
        )


def wrong_fields(overlay: Mapping[str, Any]) -> Iterator[WrongField]:
    """Yield the fields of an overlay that look like a Pod's and are none, or that have another type than there.

    Blocks for the client's import.
    """
    import_library()
    for key, kind in _ROOT.items():
        yield from _fields(overlay.get(key), kind, (key,))


def _fields(value: object, kind: str, path: KeyPath) -> Iterator[WrongField]:
    """Yield the wrong fields of a value that is to have a type such as `List[V1Container]`."""
    from kubernetes.aio.client import models

    model = getattr(models, kind, None)
    if value is None:
        return  # It removes the field from the pod.
    if wrong := _wrong_type(value, "model" if model is not None else kind, path):
        yield wrong
    elif kind.startswith("List[") and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _fields(one, kind.removeprefix("List[")[:-1], (*path, index))
    # Keys of labels, selectors, requests and limits are free.
    elif model is not None and isinstance(value, Mapping):
        types = {name: model.openapi_types[own] for own, name in model.attribute_map.items()}
        for key, one in value.items():
            if key in types:
                yield from _fields(one, types[key], (*path, key))
            elif meant := nearest(str(key), types):
                what = f"{show(key)} is not a field of a Pod there"
                yield WrongField((*path, str(key)), what, f"did you mean {meant}?", True)


def _wrong_type(value: object, kind: str, path: KeyPath) -> WrongField | None:
    """Return the problem of a value of another type than `kind`, or None."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind.startswith("List["):
        right, what, fix = isinstance(value, list), "must be a list", "write it as a list"
    elif kind.startswith("Dict[") or kind == "model":
        right, what, fix = isinstance(value, Mapping), "must be a mapping", "write it as a mapping"
    elif kind == "str":
        right = isinstance(value, str) or (number and path[-1] in _QUANTITIES)
        scalar = number or isinstance(value, bool)
        what = f"{show(value)} is not text" if scalar else "must be text"
        fix = "put it in quotes" if scalar else "write text"
    elif kind == "int":
        right = number and isinstance(value, int)
        what, fix = "must be a whole number", "write a number without quotes"
    elif kind == "bool":
        right, what, fix = isinstance(value, bool), "must be true or false", "write true or false"
    else:
        return None
    return None if right else WrongField(path, what, fix)
