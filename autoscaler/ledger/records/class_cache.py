"""The demand classes of jobs, which SKUs of a class admit a job's run, and why jobs have no class."""

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.jobs.access_rules import depends_on_run, rule_against
from autoscaler.model.jobs.demand import DemandClass, classify
from autoscaler.model.jobs.job import Admission, RunOrigin
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.reasons.unmatched import why_unmatched

MOST_CLASSES = 10_000
"""Maximum number of demand classes that a cache keeps. Anyone who can start jobs chooses their labels."""

_REFUSALS = {
    "forks": Admission.FORK,
    "public_repositories": Admission.PUBLIC_REPOSITORY,
    "branches": Admission.BRANCH,
}
"""By the key of `access` that refuses."""


class ClassCache:
    """Computes the class of each repository and set of labels once.

    Equal classes are one object, because the planner compares classes by identity. A class has no branch: all
    runs that the same SKUs admit share their classes.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._classes: dict[tuple[str, tuple[str, ...]], DemandClass | None] = {}
        self._same: dict[DemandClass, DemandClass] = {}
        self._unmatched: dict[tuple[str, tuple[str, ...]], Unmatched | None] = {}
        self._restricted = {
            sku.name for sku in catalogue.skus.values() if depends_on_run(sku.access)
        }

    def __len__(self) -> int:
        """Return the number of remembered classes, or of remembered jobs without one if that is larger."""
        return max(len(self._classes), len(self._same), len(self._unmatched))

    def class_of(self, repository: str, labels: tuple[str, ...]) -> DemandClass | None:
        """Return the class of a job with these normalised labels, whatever its run."""
        key = (repository, labels)
        if key not in self._classes:
            self._make_room()
            found = classify(self._catalogue, repository, labels)
            self._classes[key] = None if found is None else self._shared(found)
        return self._classes[key]

    def why_unmatched(self, repository: str, labels: tuple[str, ...]) -> Unmatched | None:
        """Return why no SKU serves a job with these normalised labels (see `model.reasons.unmatched`)."""
        key = (repository, labels)
        if key not in self._unmatched:
            self._make_room()
            self._unmatched[key] = why_unmatched(self._catalogue, repository, labels)
        return self._unmatched[key]

    def admit(self, demand: DemandClass, origin: RunOrigin | None) -> tuple[DemandClass, Admission]:
        """Return the class of a job of this run, and whether it may use the SKUs of that class.

        The class has those SKUs of `demand` that admit the run. A job that none of them admits keeps its class,
        and gets the reason of the first one.
        """
        if self._restricted.isdisjoint(demand.skus):
            return demand, Admission.ADMITTED
        if origin is None:
            return demand, Admission.UNREAD
        skus = self._catalogue.skus
        against = {sku: rule_against(skus[sku].access, origin) for sku in demand.skus}
        admitting = tuple(sku for sku, rule in against.items() if rule is None)
        if not admitting:
            return demand, _REFUSALS[against[demand.skus[0]] or ""]
        if admitting == demand.skus:
            return demand, Admission.ADMITTED
        self._make_room()
        part = DemandClass(demand.scope, demand.runner_group, demand.labels, admitting)
        return self._shared(part), Admission.ADMITTED

    def _make_room(self) -> None:
        if len(self) >= MOST_CLASSES:
            self._classes.clear()
            self._same.clear()
            self._unmatched.clear()

    def _shared(self, demand: DemandClass) -> DemandClass:
        return self._same.setdefault(demand, demand)
