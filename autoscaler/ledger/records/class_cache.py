"""The demand classes of jobs, which SKUs of a class admit a job's run, and why jobs have no class."""

from functools import lru_cache, partial

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.jobs.access_rules import depends_on_run, rule_against
from autoscaler.model.jobs.demand import DemandClass, classify
from autoscaler.model.jobs.job import Admission, RunOrigin
from autoscaler.model.reasons.unmatched import why_unmatched

MOST_CLASSES = 10_000
"""Maximum number of jobs' classes that a cache keeps. Anyone who can start jobs chooses their labels."""

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
        self._restricted = {
            sku.name for sku in catalogue.skus.values() if depends_on_run(sku.access)
        }
        kept = lru_cache(MOST_CLASSES)
        self._shared = kept(lambda demand: demand)
        self.class_of = kept(self._class_of)
        """Returns the class of a job of a repository with these normalised labels, whatever its run."""
        self.why_unmatched = kept(partial(why_unmatched, catalogue))
        """Returns why no SKU serves a job of a repository with these normalised labels."""

    def _class_of(self, repository: str, labels: tuple[str, ...]) -> DemandClass | None:
        found = classify(self._catalogue, repository, labels)
        return None if found is None else self._shared(found)

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
        part = DemandClass(demand.scope, demand.runner_group, demand.labels, admitting)
        return self._shared(part), Admission.ADMITTED
