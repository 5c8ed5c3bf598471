"""Imports a scale-config.yml: a SKU for each runner type and variant, and a result for every key.

Each key of the file, and each type that cannot become a SKU, is either in `carried` or in `reported`,
exactly once. `runner_keys` converts single keys. This module reads and writes no files.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.config.importing.runner_keys import (
    HardwareOf,
    ImportOptions,
    Translation,
    UnconvertibleError,
    translate,
)
from autoscaler.config.importing.runner_types import VARIANTS, RunnerType, keys_of, runner_types
from autoscaler.config.importing.values import read
from autoscaler.config.problems import KeyPath, dotted
from autoscaler.config.reading.document import Document
from autoscaler.config.settings.shapes import SkuName


@dataclass(frozen=True, slots=True, order=True)
class Reported:
    """A key that was not converted, with its line (from 1) and the reason."""

    line: int
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The result. `skus` are in the form of fleet.yaml; `carried` and `reported` are dotted paths.

    Both counters have images as `name|owner`: `assumed` counts the SKUs that got a default image, and
    `taken` the SKUs with an image, or a canary image, from the file.
    """

    skus: Mapping[str, Mapping[str, Any]]
    carried: tuple[str, ...]
    reported: tuple[Reported, ...]
    assumed: Mapping[str, int]
    taken: Mapping[str, int]


def import_types(document: Document, hardware_of: HardwareOf, options: ImportOptions) -> Imported:
    """Convert every type and variant into a SKU. Raises ConfigurationError if there are none."""
    importing = _Importing(hardware_of, options)
    for of_type in runner_types(document, options.prefix):
        importing.take(of_type)
    return importing.account(document)


class _Importing:
    """The SKUs so far, and the result for each key."""

    def __init__(self, hardware_of: HardwareOf, options: ImportOptions) -> None:
        self._hardware_of = hardware_of
        self._options = options
        self._skus: dict[str, dict[str, Any]] = {}
        self._taken: dict[str, KeyPath] = {}
        self._carried: set[KeyPath] = set()
        self._reported: dict[KeyPath, str] = {}
        self._skipped: dict[KeyPath, str | None] = {}
        self._assumed: Counter[str] = Counter()
        self._taken_images: Counter[str] = Counter()

    def take(self, of_type: RunnerType) -> None:
        """Convert one type into a SKU, or record why this is not possible."""
        try:
            self._check_label(of_type)
            done = translate(of_type, self._hardware_of, self._options)
        except UnconvertibleError as error:
            reason = self._reported.setdefault(error.path, str(error))
            # A variant may fail at a key that its type reports already, for another reason.
            self._skipped[of_type.path] = None if reason == str(error) else str(error)
            return
        self._taken[of_type.label.lower()] = of_type.path
        self._keep(of_type, done)

    def account(self, document: Document) -> Imported:
        """Return the result for every key of the file."""
        carried: list[str] = []
        reported = [
            Reported(problem.line, problem.key, f"{problem.what}; the first one is used")
            for problem in document.problems
        ]
        unreported = dict(self._reported)
        for given in keys_of(document):
            why = unreported.pop(given.path, None)
            if why is None and given.path in self._carried:
                carried.append(dotted(given.path))
                continue
            why = why or self._why_not(given.path)
            reported.append(Reported(document.line(given.path), dotted(given.path), why))
        # The others are errors of a whole type. Its variants may still use its keys.
        for path, why in unreported.items():
            reported.append(Reported(document.line(path), dotted(path), f"skipped: {why}"))
        found = tuple(sorted(reported))
        return Imported(self._skus, tuple(carried), found, self._assumed, self._taken_images)

    def _check_label(self, of_type: RunnerType) -> None:
        try:
            read(SkuName, of_type.label)
        except ValueError as error:
            raise UnconvertibleError(of_type.path, str(error)) from None
        first = self._taken.get(of_type.label.lower())
        if first is not None:
            raise UnconvertibleError(
                of_type.path, f"{of_type.label} is already the label of {dotted(first)}"
            )

    def _keep(self, of_type: RunnerType, done: Translation) -> None:
        self._skus[of_type.label] = done.sku
        self._carried |= done.carried
        for path, why in done.reported.items():
            self._reported.setdefault(path, why)
        if done.assumed is not None:
            self._assumed[done.assumed] += 1
        else:
            self._taken_images[_written(done.sku["image"])] += 1
        if (canary := done.sku["image"].get("canary")) is not None:
            self._taken_images[_written(canary)] += 1

    def _why_not(self, path: KeyPath) -> str:
        for end in range(len(path), 1, -1):
            if path[:end] in self._skipped:
                reason = self._skipped[path[:end]]
                return f"skipped with its type: {reason}" if reason else "skipped with its type"
        if len(path) == 1:
            return "unknown key"
        return "has no variants" if path[-1] == VARIANTS else "not a runner type"


def _written(image: Mapping[str, Any]) -> str:
    """Return an image as `name|owner`."""
    return f"{image['name']}|{image['owner']}"
