"""Finds what is allowed in fleet.yaml and probably not meant: warnings, never errors."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from autoscaler.config.document import Document
from autoscaler.config.problems import Problem, show
from autoscaler.config.settings import Settings
from autoscaler.config.sku_settings import SkuSettings
from autoscaler.model.identifiers import Seconds

UNTIMED_JOB: Seconds = 6 * 3600.0
"""How long GitHub lets a job run that sets no time of its own (docs.github.com, workflow syntax,
`timeout-minutes`); one that does may run for five days on a self-hosted runner (Actions limits)."""


def find_warnings(document: Document, settings: Settings) -> Iterator[Problem]:
    """Warnings by the order of the file."""
    yield from _shared_labels(document, settings)
    yield from _unlabelled(document, settings)
    yield from _barren(document, settings)
    yield from _uncovered(document, settings)
    yield from _minimums(document, settings)
    yield from _lifetimes(document, settings)


def own_labels(name: str, sku: SkuSettings) -> frozenset[str]:
    """A SKU's name and extra labels, lower case as GitHub compares them."""
    return frozenset({name.lower(), *(label.lower() for label in sku.labels)})


def _shared_labels(document: Document, settings: Settings) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, sku in settings.skus.items():
        for label in sorted(own_labels(name, sku)):
            if label not in first:
                first[label] = name
                continue
            what = f"the label {show(label)} is also {show(first[label])}'s"
            fix = f"jobs that both fit go to {show(first[label])}, which stands first; reorder them"
            yield document.problem(("skus", name), what, f"{fix} or drop the label", warning=True)


def _unlabelled(document: Document, settings: Settings) -> Iterator[Problem]:
    takers = [name for name, sku in settings.skus.items() if sku.unlabelled]
    for name in takers[1:]:
        what = f"{show(takers[0])} is unlabelled too and takes such jobs where both fit"
        path = ("skus", name, "unlabelled")
        yield document.problem(path, what, "leave it to one of them", warning=True)


def _barren(document: Document, settings: Settings) -> Iterator[Problem]:
    for index, scope in enumerate(settings.github.scopes):
        owner = (scope.org or "").lower()
        for position, glob in enumerate(scope.repositories if owner else ()):
            if fnmatchcase(owner, glob.lower().partition("/")[0]):
                continue
            path = ("github", "scopes", index, "repositories", position)
            what = f"{show(glob)} fits no repository of {show(scope.org)}"
            yield document.problem(path, what, "correct it, or remove it", warning=True)


def _uncovered(document: Document, settings: Settings) -> Iterator[Problem]:
    owners = {
        (scope.org or scope.repo or "").partition("/")[0].lower()
        for scope in settings.github.scopes
    }
    for name, sku in settings.skus.items():
        for index, glob in enumerate(sku.access.repositories):
            pattern = glob.lower().partition("/")[0]
            if any(fnmatchcase(owner, pattern) for owner in owners):
                continue
            path = ("skus", name, "access", "repositories", index)
            what = f"{show(glob)} fits nothing in github.scopes"
            yield document.problem(path, what, "add a scope, or correct the glob", warning=True)


def _minimums(document: Document, settings: Settings) -> Iterator[Problem]:
    most = settings.limits.machines
    least = sum(sku.idle.minimum for sku in settings.skus.values())
    if most is not None and least > most:
        what = f"is less than the {least} machines that the SKUs' idle.min add up to"
        yield document.problem(
            ("limits", "machines"), what, "raise it, or lower those", warning=True
        )


def _lifetimes(document: Document, settings: Settings) -> Iterator[Problem]:
    for name, sku in settings.skus.items():
        if sku.lifetime < UNTIMED_JOB:
            what = "ends jobs that GitHub lets run: for 6h without a timeout-minutes of their own"
            fix = "write the longest job's time and some more, or leave it out for 24h"
            yield document.problem(("skus", name, "lifetime"), what, fix, warning=True)
