"""Reads PyTorch's scale-config.yml: its keys, and its runner types, each merged with its variants.

`scale_config` converts the types into SKUs. The format is pytorch/test-infra's
`.github/scripts/validate_scale_config.py` and `terraform-aws-github-runner`'s `scale-up.ts`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autoscaler.config.problems import ConfigurationError, KeyPath, Problem
from autoscaler.config.reading.document import Document, Node

RUNNER_TYPES = "runner_types"
VARIANTS = "variants"
EXPERIMENT = "ami_experiment"
LABELS = "labels"

NAME_SCALE_CONFIG = (
    "use PyTorch's scale-config.yml: runner_types, and below it a label for each type"
)
"""The fix if the file is not a scale-config.yml."""

FLEET_PREFIXES = ("lf.c.", "lf.", "c.")
"""PyTorch's own prefixes, longest first. They stay in front of a variant's label."""


@dataclass(frozen=True, slots=True)
class Given:
    """A key's value and its path: in the type, or in the variant that overrides it."""

    path: KeyPath
    node: Node


@dataclass(frozen=True, slots=True)
class RunnerType:
    """A type, or a variant with the keys of its type. `path` is its place in the file."""

    label: str
    path: KeyPath
    line: int
    keys: Mapping[str, Given]


def keys_of(document: Document) -> Iterator[Given]:
    """Return every key of the file once, at the deepest level that the format defines.

    Does not look below unknown keys and values of another type.
    """
    for key, node in document.root.entries():
        if key != RUNNER_TYPES:
            yield Given((key,), node)
            continue
        for label, of_type in node.entries():
            yield from _in_type((key, label), of_type, variants=True)


def runner_types(document: Document, prefix: str) -> Iterator[RunnerType]:
    """Return each type, followed by its variants, whose keys replace the type's.

    Raises ConfigurationError when the file has none.
    """
    found = document.root.child(RUNNER_TYPES)
    if found is None or not isinstance(found.value, dict) or not found.value:
        line = found.line if found else document.root.line
        what = "has no runner types"
        problem = Problem(document.file, line, RUNNER_TYPES, what, NAME_SCALE_CONFIG)
        raise ConfigurationError([problem])
    for label, of_type in found.entries():
        path: KeyPath = (RUNNER_TYPES, label)
        own = _given(path, of_type)
        variants = own.pop(VARIANTS, None)
        if of_type.value:
            yield RunnerType(prefixed(label, prefix), path, of_type.line, own)
        for name, variant in variants.node.entries() if variants else ():
            if variant.value is not None and not isinstance(variant.value, dict):
                continue
            below = (*path, VARIANTS, name)
            merged = own | _given(below, variant)
            merged.pop(VARIANTS, None)
            varied = prefixed(label, prefix, name)
            yield RunnerType(varied, below, variant.line, merged)


def prefixed(label: str, prefix: str, variant: str = "") -> str:
    """Return `<prefix><variant>.<label>`; one of PyTorch's prefixes in the label stays first."""
    if label.startswith(prefix):
        label = label.removeprefix(prefix)
    found = next((one for one in FLEET_PREFIXES if label.startswith(one)), "")
    rest = label.removeprefix(found)
    return f"{prefix}{found}{variant}.{rest}" if variant else f"{prefix}{found}{rest}"


def _given(path: KeyPath, node: Node) -> dict[str, Given]:
    return {key: Given((*path, key), value) for key, value in node.entries()}


def _in_type(path: KeyPath, node: Node, *, variants: bool) -> Iterator[Given]:
    if not isinstance(node.value, dict) or not node.value:
        yield Given(path, node)
        return
    for key, value in node.entries():
        below = (*path, key)
        if key == VARIANTS and variants and isinstance(value.value, dict) and value.value:
            for name, variant in value.entries():
                yield from _in_type((*below, name), variant, variants=False)
        elif key == EXPERIMENT and isinstance(value.value, dict) and value.value:
            yield from (Given((*below, inner), at) for inner, at in value.entries())
        elif key == LABELS and isinstance(value.value, list) and value.value:
            yield from (Given((*below, index), at) for index, at in value.items())
        else:
            yield Given(below, value)
