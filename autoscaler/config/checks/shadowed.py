"""Finds SKUs of fleet.yaml that never get a job, because SKUs above them get all of their jobs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from autoscaler.config.configuration import Configuration
from autoscaler.config.problems import Problem, show
from autoscaler.config.settings.shapes import NoValueError
from autoscaler.config.settings.sku import AccessSettings, SkuSettings
from autoscaler.model.jobs.labels import covers, label_set

_WILDCARDS = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class _Offer:
    """The keys that decide which jobs a SKU gets; `labels` and `repositories` are in lower case."""

    name: str
    labels: frozenset[str]
    platform: tuple[str, str]
    unlabelled: bool
    access: AccessSettings
    repositories: tuple[str, ...]


def check_shadowed(configuration: Configuration) -> Iterator[Problem]:
    """Return an error for each SKU that is never launched for a job.

    The first SKU in the file that serves a job gets it. So a SKU gets no job if one SKU above it has
    all of its labels and admits all of its repositories. SKUs with errors of their own are ignored.
    """
    above: list[_Offer] = []
    for name, sku in configuration.skus():
        with suppress(NoValueError):
            offer = _offer(configuration, name, sku)
            if any(one.name.lower() == name.lower() for one in above):
                continue
            first = next(
                (one for one in above if covers(one.labels, offer.labels) and _admits(one, offer)),
                None,
            )
            if first is not None and (
                not offer.unlabelled or any(one.unlabelled and _admits(one, offer) for one in above)
            ):
                line = configuration.document.line(("skus", first.name))
                what = f"gets no job: {show(first.name)} (line {line}) comes first and has all of its labels"
                fix = f"move it above {show(first.name)}, or remove its labels from {show(first.name)}"
                yield configuration.error(("skus", name), what, fix)
            above.append(offer)


def _offer(configuration: Configuration, name: str, sku: SkuSettings) -> _Offer:
    access = sku.access
    globs = access.repositories
    owned = _owned(configuration) if "*" in globs else []
    return _Offer(
        name,
        label_set((name, *sku.labels)),
        (sku.os, sku.arch),
        sku.unlabelled,
        access,
        tuple(glob.lower() for glob in [*owned, *globs] if glob != "*" or not owned),
    )


def _owned(configuration: Configuration) -> list[str]:
    """Return globs for everything that `github.scopes` may cover, which is the meaning of `*`."""
    try:
        scopes = configuration.settings.github.scopes
        return [f"{one.org}/*" if one.org is not None else str(one.repo) for one in scopes]
    except NoValueError:
        return []


def _admits(above: _Offer, offer: _Offer) -> bool:
    """Return True if every job that `offer` admits is certainly admitted above."""
    wider, narrower = above.access, offer.access
    if above.platform != offer.platform or (narrower.forks and not wider.forks):
        return False
    if narrower.public_repositories and not wider.public_repositories:
        return False
    if wider.branches and not (
        narrower.branches and _all_covered(wider.branches, narrower.branches)
    ):
        return False
    return _all_covered(above.repositories, offer.repositories)


def _all_covered(above: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return all(any(_covers(one, glob) for one in above) for glob in globs)


def _covers(wider: str, narrower: str) -> bool:
    prefix = wider.removesuffix("*")
    if wider in ("*", narrower):
        return True
    return prefix != wider and not _WILDCARDS & set(prefix) and narrower.startswith(prefix)
