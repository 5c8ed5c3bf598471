"""Explains why no SKU serves a job of a configured scope, and finds the SKU with the closest labels."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import fits, normalise_labels, scope_of, serves
from autoscaler.model.jobs.labels import covers
from autoscaler.model.reasons.table import Unmatched

SELF_HOSTED = "self-hosted"

_HOSTED = re.compile(r"(ubuntu|windows|macos)-(latest|slim|[0-9]{2,4}(\.[0-9]{2})?)(-[a-z0-9]+)*")
"""Labels of GitHub's own runners, larger ones included (docs.github.com, "GitHub-hosted runners
reference" and "Larger runners reference"). Larger runners with a custom name cannot be recognized."""

_CLOSE = 0.6


def why_unmatched(catalogue: Catalogue, repository: str, labels: Iterable[str]) -> Unmatched | None:
    """Return why no SKU serves a job; None if one does, GitHub hosts its runner, or no scope covers it."""
    wanted = normalise_labels(labels)
    if are_hosted(wanted):
        return None
    if scope_of(catalogue, repository) is None:
        return None
    fitting = [sku for sku in catalogue.skus.values() if fits(sku, wanted)]
    if not fitting:
        return Unmatched.NAMES_NO_SKU if are_all_known(catalogue, wanted) else Unmatched.LABELS
    return None if any(serves(sku, wanted, repository) for sku in fitting) else Unmatched.ACCESS


def are_all_known(catalogue: Catalogue, labels: Iterable[str]) -> bool:
    """Return whether a SKU has all of these labels, of which there is at least one."""
    wanted = normalise_labels(labels)
    return bool(wanted) and any(
        covers(sku.offered_labels, wanted) for sku in catalogue.skus.values()
    )


def are_hosted(labels: Iterable[str]) -> bool:
    """Return whether GitHub's own runners serve a job with these labels."""
    wanted = normalise_labels(labels)
    return SELF_HOSTED not in wanted and any(_HOSTED.fullmatch(label) for label in wanted)


def nearest_sku(catalogue: Catalogue, labels: Iterable[str]) -> SkuName | None:
    """Return the SKU whose labels come closest to a job's; None if no SKU comes close.

    Compares one label only, the longest that no SKU has: comparing takes up to 10 ms for 200 SKUs.
    """
    wanted = frozenset(normalise_labels(labels))
    shared = {sku.name: len(sku.labels & wanted) for sku in catalogue.skus.values()}
    best = max(shared, key=lambda name: shared[name], default=None)
    if best is not None and shared[best]:
        return best
    offered = {label: sku.name for sku in catalogue.skus.values() for label in sku.labels}
    found = get_close_matches(_unknown(catalogue, wanted), offered, n=1, cutoff=_CLOSE)
    return offered[found[0]] if found else None


def close_label(catalogue: Catalogue, labels: Iterable[str]) -> tuple[str, str] | None:
    """Return a label of a job that no SKU has, and the label of a SKU that comes closest to it.

    None if each label is one of a SKU, or if none comes close. Compares one label, as `nearest_sku` does.
    """
    unknown = _unknown(catalogue, frozenset(normalise_labels(labels)))
    known = {label for sku in catalogue.skus.values() for label in sku.offered_labels}
    found = get_close_matches(unknown, sorted(known), n=1, cutoff=_CLOSE)
    return (unknown, found[0]) if found else None


def _unknown(catalogue: Catalogue, wanted: frozenset[str]) -> str:
    """Return the longest of these labels that no SKU has, or an empty text."""
    known = {label for sku in catalogue.skus.values() for label in sku.offered_labels}
    return max(sorted(wanted - known), key=len, default="")
