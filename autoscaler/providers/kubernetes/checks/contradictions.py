"""Checks the combinations of values in fleet.yaml that concern Kubernetes."""

import re
from collections.abc import Iterator, Mapping

from autoscaler.config.checks.repeats import repeats
from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.provider_kind import OptionOf, options_of, sections_of
from autoscaler.config.settings.shapes import NoValueError
from autoscaler.config.settings.sku import AcceleratorVendor, Driver
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.kubernetes.configuration import (
    KEY,
    KubernetesOptionKeys,
    KubernetesSection,
    Pod,
)
from autoscaler.providers.kubernetes.manifest.pod import ARCHITECTURES
from autoscaler.providers.kubernetes.settings import RUNNER
from autoscaler.providers.kubernetes.values.image_references import (
    is_image_reference,
    registry_of,
    words_of_image,
)

_ACCELERATORS = ("nvidia.com/", "amd.com/")
"""The beginnings of the resources of device plugins that `accelerator` stands for."""

PodOf = OptionOf[KubernetesSection, KubernetesOptionKeys]
"""A launch option on Kubernetes."""


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return the contradictions between keys, and warnings about values without effect or without a price."""
    yield from _namespaces(configuration)
    for name, section in sections_of(configuration, KubernetesSection):
        yield from run_checks((_timeout,), configuration, name, section)
    first: dict[str, PodOf] = {}
    for one in pods_of(configuration):
        first.setdefault(one.name, one)
    for one in first.values():
        yield from run_checks((_windows, _driver, _stock, _image), configuration, one)
    checks = (
        *(_selectors, _resources, _accelerator_resource, _vendor),
        *(_spread, _price, _gpu_image),
    )
    for one in pods_of(configuration):
        yield from run_checks(checks, configuration, one)


def pods_of(configuration: Configuration) -> Iterator[PodOf]:
    """Return the launch options on Kubernetes."""
    return options_of(configuration, KubernetesSection, KubernetesOptionKeys)


def pod_of(one: PodOf) -> Pod:
    """Return the pod of a launch option. Raises NoValueError if it has none, which is an error of its own."""
    if one.option.pod is None:
        raise NoValueError("pod")
    return one.option.pod


def resources_of(pod: Pod) -> Iterator[tuple[KeyPath, Mapping[str, str]]]:
    """Return the keys below `pod` with amounts of resources, except those without a value."""
    mode = getattr(pod, "container_mode", None)
    places: tuple[tuple[KeyPath, object], ...] = (
        ((), pod),
        (("container_mode", "dind"), getattr(mode, "dind", None)),
        (("container_mode", "kubernetes"), getattr(mode, "kubernetes", None)),
    )
    for path, section in places:
        yield (*path, "resources"), getattr(section, "resources", {})


def _image(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    clusters = {name for name, _ in sections_of(configuration, KubernetesSection)}
    if one.sku.image is not None and all(o.provider in clusters for o in one.sku.launch_options):
        what = "has no effect: all launch options are pods, which have images of their own"
        yield configuration.warning(("skus", one.name, "image"), what, "remove it")


def _price(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    limit = configuration.settings.limits.dollars_per_hour
    if limit is not None and "price" not in one.option.model_fields_set:
        what = "is missing: these pods cost nothing in limits.dollars_per_hour"
        fix = "write what a pod costs in dollars an hour, or price: 0"
        yield configuration.warning((*one.path, "price"), what, fix)


def _namespaces(configuration: Configuration) -> Iterator[Problem]:
    """Check that each namespace has one provider: two would list each other's pods as their own."""
    places: dict[tuple[str | None, ...], str] = {}
    for name, section in sections_of(configuration, KubernetesSection):
        yield from run_checks((_namespace,), configuration, name, section, places)


def _namespace(
    configuration: Configuration,
    name: str,
    section: KubernetesSection,
    places: dict[tuple[str | None, ...], str],
) -> Iterator[Problem]:
    place = (section.kubeconfig, section.context, section.namespace)
    first = places.setdefault(place, name)
    if first != name:
        line = configuration.document.line(("providers", first, KEY))
        what = f"{show(section.namespace)} is already the namespace of provider {show(first)} (line {line})"
        fix = f"use provider {show(first)} in the SKUs, or write another namespace or context"
        yield configuration.error(("providers", name, KEY, "namespace"), what, fix)


def _timeout(
    configuration: Configuration, name: str, section: KubernetesSection
) -> Iterator[Problem]:
    if not section.provisioner and "pending_timeout" in section.model_fields_set:
        what = "has no effect: without a provisioner, a pod that fits on no node is deleted at once"
        fix = "remove it, or write provisioner: true"
        yield configuration.error(("providers", name, KEY, "pending_timeout"), what, fix)


def _windows(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    if one.sku.os is OperatingSystem.WINDOWS:
        what = f"pods run on Linux only, and {show(one.option.provider)} is on Kubernetes"
        fix = "remove it, or the launch option on Kubernetes"
        yield configuration.error(("skus", one.name, "os"), what, fix)


def _driver(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    if one.sku.driver is Driver.INSTALL:
        provider = show(one.option.provider)
        what = f"a pod uses the driver of its node, and {provider} is on Kubernetes"
        fix = "write preinstalled, or remove the launch option on Kubernetes"
        yield configuration.error(("skus", one.name, "driver"), what, fix)


def _stock(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    if one.sku.stock is not None:
        provider = show(one.option.provider)
        what = f"the agent installs no runner in a pod, and {provider} is on Kubernetes"
        fix = "write an image of your own, or remove the launch option on Kubernetes"
        yield configuration.error(("skus", one.name, "image", "stock"), what, fix)


def _selectors(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    """Check that node selectors do not contradict the SKU, whose labels the pods select already."""
    for key, value in pod_of(one).node_selector.items():
        label = key.removeprefix("beta.")
        if label == "kubernetes.io/os":
            own, fix = "linux", "remove it"
        elif label == "kubernetes.io/arch":
            own, fix = ARCHITECTURES[one.sku.arch], "remove it, or correct arch in the SKU"
        else:
            continue
        if value != own:
            what = f"{show(value)} contradicts the SKU, whose pods run on nodes with {own}"
            yield configuration.error((*one.path, "pod", "node_selector", key), what, fix)


def _resources(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    """Check that accelerators are in `accelerator`, and nowhere else."""
    for path, resources in resources_of(pod_of(one)):
        for key in resources:
            if key.startswith(_ACCELERATORS):
                what = "accelerators are not part of resources"
                fix = "write accelerator: {vendor: ..., count: ...} in the SKU"
                if key not in ("nvidia.com/gpu", "amd.com/gpu"):
                    fix += f", and accelerator_resource: {key} in the pod"
                yield configuration.error((*one.path, "pod", *path, key), what, fix)


def _accelerator_resource(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    resource = pod_of(one).accelerator_resource
    if resource is not None and "accelerator" not in one.sku.model_fields_set:
        what = "names the resource of accelerators, and the SKU has none"
        fix = "add accelerator: {vendor: ..., count: ...} to the SKU, or remove it"
        yield configuration.error((*one.path, "pod", "accelerator_resource"), what, fix)


def _vendor(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    resource = pod_of(one).accelerator_resource
    if one.sku.accelerator is None or not (resource or "").startswith(_ACCELERATORS):
        return
    vendor = one.sku.accelerator.vendor
    if (resource or "").split(".")[0] != vendor:
        what = f"is a resource of another vendor than the SKU's accelerator, {show(vendor)}"
        fix = "correct accelerator.vendor, or this resource"
        yield configuration.error((*one.path, "pod", "accelerator_resource"), what, fix)


def _spread(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    """Check that no key repeats: the API server refuses the pod (`ValidateTopologySpreadConstraints`)."""
    keys = pod_of(one).topology_spread
    for index in repeats(keys):
        path = (*one.path, "pod", "topology_spread", index)
        yield configuration.error(path, f"repeats {show(keys[index])}", "remove it")


_REGISTRIES = {"nvcr.io": AcceleratorVendor.NVIDIA}

_KINDS = {AcceleratorVendor.NVIDIA: "CUDA", AcceleratorVendor.AMD: "ROCm"}

_CUDA = re.compile(
    r"(?<![a-z])(py|lib|lib64)?(cuda|cudnn|cudf|cugraph|cuml)"  # not `barracuda`
    r"|(?<![a-z0-9])cu(9|1[0-9])[0-9]?(?![a-z0-9])"  # cu118, cu12, cu130
    r"|(?<![a-z])(nvidia|tensorrt|tritonserver|rapidsai|dcgm)(?![a-z])"
)
_ROCM = re.compile(r"(?<![a-z])rocm")
_ANY = re.compile(r"(?<![a-z])gpu(?![a-z])")


def gpu_vendors(image: str) -> frozenset[AcceleratorVendor]:
    """Return the vendors of the GPUs for which an image looks made: several if it may be any of them.

    Nothing asks the registry: these are the words of vendors and frameworks in names and tags: `nvidia/cuda`,
    `pytorch/pytorch:2.9.0-cuda12.8`, `vllm/vllm-openai:cu129`, `rocm/pytorch`,
    `tensorflow/tensorflow:2.20.0-gpu`, and all of nvcr.io.
    """
    words = words_of_image(image).lower()
    found = {_REGISTRIES[one] for one in (registry_of(image).lower(),) if one in _REGISTRIES}
    if _CUDA.search(words):
        found.add(AcceleratorVendor.NVIDIA)
    if _ROCM.search(words):
        found.add(AcceleratorVendor.AMD)
    if not found and _ANY.search(words):
        found |= set(AcceleratorVendor)
    return frozenset(found)


def _gpu_image(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    """Warn of an image of a runner whose jobs would see no GPU."""
    wanted = one.sku.accelerator.vendor if one.sku.accelerator is not None else None
    place, image = _image_of(pod_of(one))
    vendors = gpu_vendors(image) if is_image_reference(image) else frozenset()
    if not vendors or wanted in vendors:
        return
    kind = "GPUs" if len(vendors) > 1 else _KINDS[min(vendors)]
    has = "no accelerator" if wanted is None else f"accelerators of {show(wanted)} only"
    what = f"{show(image)} looks like an image for {kind}, and the SKU has {has}: jobs see no GPU"
    vendor = "..." if len(vendors) > 1 else min(vendors)
    fix = f"write accelerator: {{vendor: {vendor}, count: ...}} in the SKU, or use another image"
    yield configuration.warning((*one.path, "pod", *place), what, fix)


def _image_of(pod: Pod) -> tuple[KeyPath, str]:
    """Return the image of the runner's container, which its overlay may replace, and its place."""
    found: tuple[KeyPath, str] = ("image",), pod.image
    spec = pod.overlay.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for index, one in enumerate(containers if isinstance(containers, list) else ()):
        if isinstance(one, dict) and one.get("name") == RUNNER and "image" in one:
            found = ("overlay", "spec", "containers", index, "image"), one["image"]
    return found
