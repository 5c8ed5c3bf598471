"""Uses a changed catalogue: gives jobs the class that the new SKUs give them."""

from autoscaler.ledger.records.class_cache import ClassCache
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.job import Admission, Job, JobState


def use_changed_catalogue(state: LedgerState, catalogue: Catalogue) -> int:
    """Use another catalogue, and return how many jobs have another class or admission.

    O(jobs) to compare, and O(log n) for each job that changes.
    """
    fresh, before = ClassCache(catalogue), state.catalogue
    shares = {name for name in before.skus if _share(before, name) != _share(catalogue, name)}
    known: dict[object, bool] = {}
    moved = []
    for job in state.jobs.values():
        if job.state is JobState.COMPLETED:
            continue
        # Jobs of one class are mostly equal in all this, and comparing two classes takes long.
        key = (job.repository, job.labels, job.origin, id(job.demand), job.admission)
        moves = known.get(key)
        if moves is None:
            moves = known[key] = _moves(fresh, shares, job)
        if moves:
            moved.append(job)
    moving = {job.id for job in moved}
    unmatched = [job for jobs in state.unmatched.values() for job in jobs.values()]
    # The reason of a job without a class may change, too.
    staying = [job for job in unmatched if job.id not in moving]
    for job in (*moved, *staying):
        state.unindex(job)
    state.use_catalogue(catalogue)
    for job in staying:
        state.index(job)
    for job in moved:
        state.admit(job)
        state.index(job)
        state.touch(job)
    return len(moved)


def _share(catalogue: Catalogue, name: SkuName) -> bool:
    """Return whether a SKU has a fair share: only then its jobs are in queues by repository."""
    sku = catalogue.skus.get(name)
    return sku is not None and sku.share is not None


def _moves(fresh: ClassCache, shares: set[SkuName], job: Job) -> bool:
    """Return whether a job has another class now, or whether its SKU has got or lost a fair share."""
    if job.demand is not None and job.demand.skus[0] in shares:
        return True
    demand, admission = fresh.class_of(job.repository, job.labels), Admission.ADMITTED
    if demand is not None:
        demand, admission = fresh.admit(demand, job.origin)
    return (demand, admission) != (job.demand, job.admission)
