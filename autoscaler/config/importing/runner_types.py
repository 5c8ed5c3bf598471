"""Reads PyTorch's scale-config.yml: its keys, and its runner types, each merged with its variants.

`runner_keys` converts the types into SKUs. The format is pytorch/test-infra's
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

    def keys(self) -> dict[str, "Given"]:
        """Return the keys of a mapping; none of another value."""
        entries = self.value.items() if isinstance(self.value, dict) else ()
        return {key: Given((*self.path, key), value) for key, value in entries}

    def parts(self) -> list["Given"]:
        """Return the labels of a list, the keys of an experiment, and any other value as it is."""
        key, value = self.path[-1], self.value
        has_parts = (key == EXPERIMENT and isinstance(value, dict)) or (
            key == LABELS and isinstance(value, list)
        )
        if not has_parts:
            return [self]
        return [Given((*self.path, key), one) for key, one in children(value)] or [self]


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
    for key, given in Given((), document.content).keys().items():
        if key != RUNNER_TYPES:
            yield given
            continue
        for of_type in given.keys().values():
            yield from _keys_below(of_type, of_type.keys().get(VARIANTS))


def _keys_below(of_type: Given, variants: Given | None = None) -> Iterator[Given]:
    if not of_type.keys():
        yield of_type
    for given in of_type.keys().values():
        if given == variants and given.keys():
            for variant in given.keys().values():
                yield from _keys_below(variant)
        else:
            yield from given.parts()


def runner_types(document: Document, prefix: str) -> Iterator[RunnerType]:
    """Return each type, followed by its variants, whose keys replace the type's.

    Raises ConfigurationError when the file has none.
    """
    path: KeyPath = (RUNNER_TYPES,)
    found = Given(path, document.value(path)).keys()
    if not found:
        raise ConfigurationError([document.problem(path, "has no runner types", NAME_SCALE_CONFIG)])
    for label, of_type in found.items():
        own = of_type.keys()
        variants = own.pop(VARIANTS, None)
        if of_type.value:
            yield RunnerType(prefixed(label, prefix), of_type.path, own)
        for name, variant in variants.keys().items() if variants is not None else ():
            if variant.value is None or isinstance(variant.value, dict):
                keys = own | variant.keys()
                keys.pop(VARIANTS, None)
                yield RunnerType(prefixed(label, prefix, name), variant.path, keys)


def prefixed(label: str, prefix: str, variant: str = "") -> str:
    """Return `<prefix><variant>.<label>`; one of PyTorch's prefixes in the label stays first."""
    if label.startswith(prefix):
        label = label.removeprefix(prefix)
    found = next((one for one in FLEET_PREFIXES if label.startswith(one)), "")
    rest = label.removeprefix(found)
    return f"{prefix}{found}{variant}.{rest}" if variant else f"{prefix}{found}{rest}"
