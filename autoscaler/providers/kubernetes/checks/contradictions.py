"""Checks the combinations of values in fleet.yaml that concern Kubernetes. Reads the file as written."""

from collections.abc import Iterator

from autoscaler.config.checks import text
from autoscaler.config.document import Document
from autoscaler.config.problems import Problem, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.config.settings import Settings
from autoscaler.model.catalogue import Architecture
from autoscaler.providers.kubernetes.manifest.pod import ARCHITECTURES

KEY = "kubernetes"
"""The key of a Kubernetes provider's section."""

_ACCELERATORS = ("nvidia.com/", "amd.com/")
"""The beginnings of the resources of device plugins that `accelerator` stands for."""

RESOURCES: tuple[tuple[str, ...], ...] = (
    ("resources",),
    *(("container_mode", mode, "resources") for mode in ("dind", "kubernetes")),
)
"""The keys below `pod` with amounts of resources."""

_NODES = {arch.value: label for arch, label in ARCHITECTURES.items()}
"""The label `kubernetes.io/arch` of the nodes for a SKU's `arch`."""


def contradictions(document: Document) -> Iterator[Problem]:
    """Return the contradictions between keys."""
    yield from _namespaces(document)
    yield from _timeouts(document)
    yield from _systems(document)
    yield from _selectors(document)
    yield from _accelerators(document)
    yield from _spreads(document)


def warnings(document: Document, settings: Settings) -> Iterator[Problem]:
    """Return warnings about machine images of SKUs that have pods only, and about pods without a price."""
    clusters = {name for name, _ in sections_of(document, KEY)}
    for name, sku in settings.skus.items():
        if sku.image is not None and all(one.provider in clusters for one in sku.launch_options):
            what = "has no effect: all launch options are pods, which have images of their own"
            yield document.problem(("skus", name, "image"), what, "remove it", warning=True)
    if settings.limits.dollars_per_hour is None:
        return
    for name, _, index, option in options_of(document, KEY):
        if option.child("price") is None:
            what = "is missing: these pods cost nothing in limits.dollars_per_hour"
            fix = "write what a pod costs in dollars an hour, or price: 0"
            yield document.problem(("skus", name, "on", index, "price"), what, fix, warning=True)


def _namespaces(document: Document) -> Iterator[Problem]:
    """Check that each namespace has one provider: two would list each other's pods as their own."""
    places: dict[tuple[str | None, ...], tuple[str, int]] = {}
    for name, section in sections_of(document, KEY):
        namespace = text(section, "namespace")
        if namespace is None:
            continue
        place = (text(section, "kubeconfig"), text(section, "context"), namespace)
        if place in places:
            first, line = places[place]
            what = f"{show(namespace)} is already the namespace of provider {show(first)} (line {line})"
            fix = f"use provider {show(first)} in the SKUs, or write another namespace or context"
            yield document.problem(("providers", name, KEY, "namespace"), what, fix)
        places.setdefault(place, (name, section.line))


def _timeouts(document: Document) -> Iterator[Problem]:
    for name, section in sections_of(document, KEY):
        provisioner = section.child("provisioner")
        if (
            provisioner is not None
            and provisioner.value is False
            and section.child("pending_timeout")
        ):
            what = "has no effect: without a provisioner, a pod that fits on no node is deleted at once"
            fix = "remove it, or write provisioner: true"
            yield document.problem(("providers", name, KEY, "pending_timeout"), what, fix)


def _systems(document: Document) -> Iterator[Problem]:
    checked: set[str] = set()
    for name, sku, _, option in options_of(document, KEY):
        if name in checked:
            continue
        checked.add(name)
        provider = show(text(option, "provider"))
        if text(sku, "os") == "windows":
            what = f"pods run on Linux only, and {provider} is on Kubernetes"
            yield document.problem(
                ("skus", name, "os"), what, "remove it, or the launch option on Kubernetes"
            )
        if text(sku, "driver") == "install":
            what = f"a pod uses the driver of its node, and {provider} is on Kubernetes"
            fix = "write preinstalled, or remove the launch option on Kubernetes"
            yield document.problem(("skus", name, "driver"), what, fix)


def _selectors(document: Document) -> Iterator[Problem]:
    """Check that node selectors do not contradict the SKU, whose labels the pods select already."""
    for name, sku, index, option in options_of(document, KEY):
        arch = text(sku, "arch") or Architecture.X64
        labels = option.get("pod", "node_selector")
        for key, node in labels.entries() if labels is not None else ():
            label = key.removeprefix("beta.")
            own = {"kubernetes.io/os": "linux", "kubernetes.io/arch": _NODES.get(arch)}.get(label)
            if own is None or node.value == own:
                continue
            what = f"{show(node.value)} contradicts the SKU, whose pods run on nodes with {own}"
            fix = "remove it"
            if label == "kubernetes.io/arch":
                fix += ", or correct arch in the SKU"
            path = ("skus", name, "on", index, "pod", "node_selector", key)
            yield document.problem(path, what, fix)


def _accelerators(document: Document) -> Iterator[Problem]:
    """Check that accelerators are in `accelerator`, and nowhere else."""
    for name, sku, index, option in options_of(document, KEY):
        path = ("skus", name, "on", index, "pod")
        for keys in RESOURCES:
            resources = option.get("pod", *keys)
            for key, _ in resources.entries() if resources else ():
                if key.startswith(_ACCELERATORS):
                    what = "accelerators are not part of resources"
                    fix = "write accelerator: {vendor: ..., count: ...} in the SKU"
                    if key not in ("nvidia.com/gpu", "amd.com/gpu"):
                        fix += f", and accelerator_resource: {key} in the pod"
                    yield document.problem((*path, *keys, key), what, fix)
        if option.get("pod", "accelerator_resource") and sku.child("accelerator") is None:
            what = "names the resource of accelerators, and the SKU has none"
            fix = "add accelerator: {vendor: ..., count: ...} to the SKU, or remove it"
            yield document.problem((*path, "accelerator_resource"), what, fix)
        resource = text(option, "pod", "accelerator_resource") or ""
        vendor = text(sku, "accelerator", "vendor")
        if resource.startswith(_ACCELERATORS) and vendor not in (None, resource.split(".")[0]):
            what = f"is a resource of another vendor than the SKU's accelerator, {show(vendor)}"
            fix = "correct accelerator.vendor, or this resource"
            yield document.problem((*path, "accelerator_resource"), what, fix)


def _spreads(document: Document) -> Iterator[Problem]:
    """Check that no key repeats: the API server refuses the pod (`ValidateTopologySpreadConstraints`)."""
    for name, _, index, option in options_of(document, KEY):
        keys = option.get("pod", "topology_spread")
        seen: set[object] = set()
        for at, key in keys.items() if keys is not None else ():
            if isinstance(key.value, str) and key.value in seen:
                path = ("skus", name, "on", index, "pod", "topology_spread", at)
                yield document.problem(path, f"repeats {show(key.value)}", "remove it")
            seen.add(key.value if isinstance(key.value, str) else None)
