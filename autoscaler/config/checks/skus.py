"""Checks each SKU of fleet.yaml against itself, the other SKUs and the providers.

Reads the file as written, like `checks`. Each kind of provider checks its own keys.
"""

import re
from collections.abc import Iterator, Sequence

from autoscaler.config.checks.contradictions import kind_of, text
from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.reading.document import Document, Node

_ARCHITECTURE = re.compile("gfx[0-9a-f]{3,5}")
"""The name of an architecture of AMD, as rocminfo prints it."""


def check_skus(document: Document, kinds: Sequence[ProviderKind]) -> Iterator[Problem]:
    """Return every contradiction within `skus`, except those that only a kind of provider knows."""
    seen: dict[str, str] = {}
    skus = document.root.child("skus")
    for name, sku in skus.entries() if skus else ():
        path = ("skus", name)
        if name.lower() in seen:
            what = f"repeats the SKU {show(seen[name.lower()])}: labels are case-insensitive"
            yield document.problem(path, what, "rename one of them")
        seen.setdefault(name.lower(), name)
        yield from _minimums(document, path, sku)
        yield from _labels(document, path, sku)
        yield from _accelerator(document, path, sku)
        launch_options = sku.child("on")
        for index, option in launch_options.items() if launch_options else ():
            yield from _option(document, (*path, "on", index), option, kinds)


def _minimums(document: Document, path: KeyPath, sku: Node) -> Iterator[Problem]:
    most = _whole(sku, "max_machines")
    if most is None:
        if sku.child("fair_share") is not None and sku.child("max_machines") is None:
            what = "is a share of max_machines, and max_machines is missing"
            yield document.problem((*path, "fair_share"), what, "add max_machines, or remove it")
        return
    schedule = sku.get("idle", "schedule")
    places: list[KeyPath] = [("idle", "min")]
    places += [("idle", "schedule", index, "min") for index, _ in (schedule or sku).items()]
    for place in places:
        least = _whole(sku, *place)
        if least is not None and least > most:
            what = f"{least} is more than max_machines, {most}"
            yield document.problem((*path, *place), what, "lower it, or raise max_machines")


def _labels(document: Document, path: KeyPath, sku: Node) -> Iterator[Problem]:
    seen = {str(path[-1]).lower()}
    labels = sku.child("labels")
    for index, label in labels.items() if labels else ():
        name = label.value
        if isinstance(name, str) and name.lower() in seen:
            yield document.problem((*path, "labels", index), "is repeated", "remove it")
        seen.add(str(name).lower())


def _accelerator(document: Document, path: KeyPath, sku: Node) -> Iterator[Problem]:
    vendor = text(sku, "accelerator", "vendor")
    if vendor == "amd" and text(sku, "os") == "windows":
        what = "the health checks of amd need Linux"
        yield document.problem((*path, "accelerator", "vendor"), what, "remove accelerator")
    if text(sku, "driver") == "install" and sku.child("accelerator") is None:
        what = "installs nothing without an accelerator"
        yield document.problem((*path, "driver"), what, "add accelerator, or remove driver")
    if text(sku, "driver") == "none" and sku.child("accelerator") is not None:
        what = "contradicts accelerator, which the health checks ask the driver for"
        yield document.problem((*path, "driver"), what, "remove one of them")
    models = sku.get("accelerator", "models")
    for index, node in models.items() if models else ():
        name = node.value
        if vendor not in ("amd", "nvidia") or not isinstance(name, str):
            continue
        if (vendor == "amd") != (_ARCHITECTURE.fullmatch(name) is not None):
            amd = "an architecture, such as gfx942: rocminfo prints it as Name"
            nvidia = "a product name, such as NVIDIA A10G: nvidia-smi -L prints it"
            what = f"{show(name)} is not a model of {vendor}"
            fix = f"write {amd if vendor == 'amd' else nvidia}"
            yield document.problem((*path, "accelerator", "models", index), what, fix)


def _option(
    document: Document, path: KeyPath, option: Node, kinds: Sequence[ProviderKind]
) -> Iterator[Problem]:
    name = text(option, "provider")
    known = [key for key, _ in (document.root.child("providers") or Node(1)).entries()]
    if name is not None and name not in known:
        meant = nearest(name, known)
        add = f"write {listed(known)}, or add it to providers" if known else "add it to providers"
        fix = f"did you mean {meant}?" if meant else add
        what = f"{show(name)} is not a provider of this file"
        yield document.problem((*path, "provider"), what, fix)
    provider = document.root.get("providers", name) if name is not None else None
    found = kind_of(provider, [kind.key for kind in kinds])
    for kind in kinds:
        if kind.key == found:
            others = [key for one in kinds if one is not kind for key in one.option_keys]
            yield from _fits(document, path, option, kind.needs, others)
    yield from _repeats(document, path, option)


def _fits(
    document: Document, path: KeyPath, option: Node, needed: str, unsupported: Sequence[str]
) -> Iterator[Problem]:
    provider = text(option, "provider")
    found = option.child(needed)
    if found is None or found.value is None:
        what = f"is missing, and {show(provider)} requires it"
        yield document.problem((*path, needed), what, f"add {needed}")
    for key in unsupported:
        if option.child(key) is not None:
            what = f"is not supported by {show(provider)}"
            yield document.problem((*path, key), what, "remove it, or name another provider")


def _repeats(document: Document, path: KeyPath, option: Node) -> Iterator[Problem]:
    for key, values in option.entries():
        seen: set[object] = set()
        for index, node in values.items():
            if isinstance(node.value, str) and node.value in seen:
                yield document.problem((*path, key, index), "is repeated", "remove it")
            if isinstance(node.value, str):
                seen.add(node.value)


def _whole(sku: Node, *path: str | int) -> int | None:
    node = sku.get(*path)
    # Not isinstance: in Python a bool is an int too.
    return node.value if node and type(node.value) is int else None
