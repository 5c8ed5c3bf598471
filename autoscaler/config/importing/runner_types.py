"""Reads PyTorch's scale-config.yml: its keys, and its runner types, each merged with its variants.

`scale_config` converts the types into SKUs. The format is pytorch/test-infra's
`.github/scripts/validate_scale_config.py` and `terraform-aws-github-runner`'s `scale-up.ts`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.config.problems import ConfigurationError, KeyPath
from autoscaler.config.reading.document import Document, children

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
    value: Any


@dataclass(frozen=True, slots=True)
class RunnerType:
    """A type, or a variant with the keys of its type. `path` is its place in the file."""

    label: str
    path: KeyPath
    keys: Mapping[str, Given]


def keys_of(document: Document) -> Iterator[Given]:
    """Return every key of the file once, at the deepest level that the format defines.

    Does not look below unknown keys and values of another type.
    """
    for key, value in _entries(document.content):
        if key != RUNNER_TYPES:
            yield Given((key,), value)
            continue
        for label, of_type in _entries(value):
            yield from _in_type((key, label), of_type, variants=True)


def runner_types(document: Document, prefix: str) -> Iterator[RunnerType]:
    """Return each type, followed by its variants, whose keys replace the type's.

    Raises ConfigurationError when the file has none.
    """
    found = _entries(document.value((RUNNER_TYPES,)))
    if not found:
        problem = document.problem((RUNNER_TYPES,), "has no runner types", NAME_SCALE_CONFIG)
        raise ConfigurationError([problem])
    for label, of_type in found:
        path: KeyPath = (RUNNER_TYPES, label)
        own = _given(path, of_type)
        variants = own.pop(VARIANTS, None)
        if of_type:
            yield RunnerType(prefixed(label, prefix), path, own)
        for name, variant in _entries(variants.value) if variants else ():
            if variant is not None and not isinstance(variant, dict):
                continue
            below = (*path, VARIANTS, name)
            merged = own | _given(below, variant)
            merged.pop(VARIANTS, None)
            varied = prefixed(label, prefix, name)
            yield RunnerType(varied, below, merged)


def prefixed(label: str, prefix: str, variant: str = "") -> str:
    """Return `<prefix><variant>.<label>`; one of PyTorch's prefixes in the label stays first."""
    if label.startswith(prefix):
        label = label.removeprefix(prefix)
    found = next((one for one in FLEET_PREFIXES if label.startswith(one)), "")
    rest = label.removeprefix(found)
    return f"{prefix}{found}{variant}.{rest}" if variant else f"{prefix}{found}{rest}"


def _entries(value: Any) -> list[tuple[str, Any]]:
    """Return the keys and values of a mapping; nothing for another value."""
    return list(value.items()) if isinstance(value, dict) else []


def _given(path: KeyPath, value: Any) -> dict[str, Given]:
    return {key: Given((*path, key), one) for key, one in _entries(value)}


def _in_type(path: KeyPath, found: Any, *, variants: bool) -> Iterator[Given]:
    if not isinstance(found, dict) or not found:
        yield Given(path, found)
        return
    for key, value in found.items():
        below = (*path, key)
        if key == VARIANTS and variants and isinstance(value, dict) and value:
            for name, variant in value.items():
                yield from _in_type((*below, name), variant, variants=False)
        elif (key == EXPERIMENT and isinstance(value, dict) and value) or (
            key == LABELS and isinstance(value, list) and value
        ):
            yield from (Given((*below, inner), one) for inner, one in children(value))
        else:
            yield Given(below, value)
