"""Finds SKUs of fleet.yaml that never get a job, because SKUs above them get all of their jobs.

Reads the file as written, like `checks`. Ignores SKUs with errors of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from autoscaler.config.checks import text
from autoscaler.config.document import Document, Node
from autoscaler.config.problems import Problem, show
from autoscaler.model.jobs.labels import covers, label_set

_WILDCARDS = frozenset("*?[]")
_PLATFORM = (("os", "linux"), ("arch", "x64"))


@dataclass(frozen=True, slots=True)
class _Offer:
    """The keys that decide which jobs a SKU gets; `labels` are in lower case."""

    name: str
    line: int
    labels: frozenset[str]
    platform: tuple[str, str]
    unlabelled: bool
    forks: bool
    public: bool
    repositories: tuple[str, ...]
    branches: tuple[str, ...]


def check_shadowed(document: Document) -> Iterator[Problem]:
    """Return an error for each SKU that is never launched for a job.

    The first SKU in the file that serves a job gets it. So a SKU gets no job if one SKU above it has
    all of its labels and admits all of its repositories.
    """
    above: list[_Offer] = []
    skus = document.root.child("skus")
    for name, sku in skus.entries() if skus else ():
        offer = _offer(document, name, sku)
        if offer is None or any(one.name.lower() == name.lower() for one in above):
            continue
        first = next((one for one in above if _has_labels_of(one, offer)), None)
        if first is not None and (
            not offer.unlabelled or any(_takes_unlabelled_of(one, offer) for one in above)
        ):
            what = (
                f"gets no job: {show(first.name)} (line {first.line}) comes first "
                "and has all of its labels"
            )
            fix = f"move it above {show(first.name)}, or remove its labels from {show(first.name)}"
            yield document.problem(("skus", name), what, fix)
        above.append(offer)


def _offer(document: Document, name: str, sku: Node) -> _Offer | None:
    if not isinstance(sku.value, dict):
        return None
    labels, unlabelled = sku.child("labels"), sku.child("unlabelled")
    given = labels.plain() if labels else []
    globs, forks = sku.get("access", "repositories"), sku.get("access", "forks")
    repositories = globs.plain() if globs else ["*"]
    public, patterns = sku.get("access", "public_repositories"), sku.get("access", "branches")
    branches = patterns.plain() if patterns else []
    os, arch = (text(sku, key) if sku.child(key) else usual for key, usual in _PLATFORM)
    if os is None or arch is None or not all(map(_texts, (given, repositories, branches))):
        return None
    owned = _owned(document) if "*" in repositories else []
    return _Offer(
        name,
        sku.line,
        label_set((name, *given)),
        (os, arch),
        unlabelled is not None and unlabelled.value is True,
        forks is not None and forks.value is True,
        public is None or public.value is not False,
        tuple(glob.lower() for glob in [*owned, *repositories] if glob != "*" or not owned),
        tuple(branches),
    )


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _owned(document: Document) -> list[str]:
    """Return globs for everything that `github.scopes` may cover, which is the meaning of `*`."""
    scopes = document.root.get("github", "scopes")
    found: list[str] = []
    for _, scope in scopes.items() if scopes else ():
        org, repo = text(scope, "org"), text(scope, "repo")
        if org is None and repo is None:
            return []
        found.append(f"{org}/*" if org is not None else str(repo))
    return found


def _has_labels_of(above: _Offer, offer: _Offer) -> bool:
    return covers(above.labels, offer.labels) and _admits(above, offer)


def _takes_unlabelled_of(above: _Offer, offer: _Offer) -> bool:
    return above.unlabelled and _admits(above, offer)


def _admits(above: _Offer, offer: _Offer) -> bool:
    """Return True if every job that `offer` admits is certainly admitted above."""
    if above.platform != offer.platform or (offer.forks and not above.forks):
        return False
    if (offer.public and not above.public) or (above.branches and not offer.branches):
        return False
    return _all_covered(above.repositories, offer.repositories) and (
        not above.branches or _all_covered(above.branches, offer.branches)
    )


def _all_covered(above: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return all(any(_covers(one, glob) for one in above) for glob in globs)


def _covers(wider: str, narrower: str) -> bool:
    prefix = wider.removesuffix("*")
    if wider in ("*", narrower):
        return True
    return prefix != wider and not _WILDCARDS & set(prefix) and narrower.startswith(prefix)
