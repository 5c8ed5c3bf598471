"""Demand classes: which class a job belongs to, and which SKUs may serve it.

A class is what GitHub compares when it assigns a job to a runner (scope, runner group, labels),
together with the SKUs that may serve it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from autoscaler.model.catalogue import Catalogue, Scope, Sku
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.access_rules import admits_repository
from autoscaler.model.jobs.labels import covers, label_set


class _Computed:
    """Values that are computed once: a plan uses hundreds of classes as keys many times."""

    __slots__ = ("_hash", "account")
    _hash: int
    account: str


@dataclass(frozen=True, slots=True, order=True)
class DemandClass(_Computed):
    """Jobs that any runner of the class could run. `skus` keeps the configured order.

    `account` is the organization or user whose registration limits a runner of this class counts against.
    """

    scope: str
    runner_group: str
    labels: tuple[str, ...]
    skus: tuple[SkuName, ...]

    def __post_init__(self) -> None:
        account = self.scope.partition(":")[2].partition("/")[0].lower()
        object.__setattr__(self, "account", account)
        key = (self.scope, self.runner_group, self.labels, self.skus)
        object.__setattr__(self, "_hash", hash(key))

    def __reduce__(self) -> tuple[object, ...]:
        """Return how a copy is made: it computes its own values."""
        return DemandClass, (self.scope, self.runner_group, self.labels, self.skus)

    def __hash__(self) -> int:
        """Return the hash that was computed at the start."""
        return self._hash

    @property
    def text(self) -> str:
        """Return all parts as one line, which names the class in the history."""
        return " ".join((self.scope, self.runner_group, *self.labels, "on", *self.skus))

    @property
    def runner_labels(self) -> tuple[str, ...]:
        """Return the labels of the class's runners: exactly those of the jobs.

        With more labels, GitHub could give the runner jobs of another class.
        """
        return self.labels or (self.skus[0],)


def normalise_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels in lower case, sorted, without duplicates. GitHub ignores the case of labels."""
    return tuple(sorted(label_set(labels)))


def scope_of(catalogue: Catalogue, repository: str) -> Scope | None:
    """Return the first configured scope that covers `owner/name`, or None."""
    return first_scope(catalogue.scopes, repository)


def first_scope(scopes: Sequence[Scope], repository: str) -> Scope | None:
    """Return the first of these scopes that covers `owner/name`, or None."""
    name = repository.lower()
    owner, _, short = name.partition("/")
    for scope in scopes:
        if scope.owner.lower() != owner:
            continue
        if scope.repository is not None and scope.repository.lower() != short:
            continue
        if _matches(name, scope.repositories):
            return scope
    return None


def admits(sku: Sku, repository: str) -> bool:
    """Return True if `sku` may run jobs of this repository."""
    return admits_repository(sku.access, repository)


def serves(sku: Sku, labels: tuple[str, ...], repository: str) -> bool:
    """Return True if `sku` may run a job with these normalised labels from this repository.

    Whether it may run the job also depends on the job's run (`access_rules.rule_against`).
    """
    return admits(sku, repository) and fits(sku, labels)


def fits(sku: Sku, labels: tuple[str, ...]) -> bool:
    """Return True if `sku` has all of these normalised labels, and they select it."""
    selected = sku.unlabelled or bool(sku.labels.intersection(labels))
    return selected and covers(sku.offered_labels, labels)


def classify(catalogue: Catalogue, repository: str, labels: Iterable[str]) -> DemandClass | None:
    """Return the class of a job, or None if no scope covers it or no SKU serves it.

    Whether the SKUs admit the job's run is not part of it (`ledger.records.state.LedgerState.admit`).
    """
    scope = scope_of(catalogue, repository)
    if scope is None:
        return None
    wanted = normalise_labels(labels)
    skus = tuple(sku.name for sku in catalogue.skus.values() if serves(sku, wanted, repository))
    if not skus:
        return None
    return DemandClass(scope.key, scope.runner_group, wanted, skus)


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob.lower()) for glob in globs)
