"""Why does my job wait: which SKUs match it, what was tried, and what happens next."""

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.demand import classify, fits, normalise_labels, scope_of
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.reasons.unmatched import (
    are_all_known,
    are_hosted,
    close_label,
    nearest_sku,
    why_unmatched,
)
from autoscaler.model.reasons.waiting import Reason
from autoscaler.views.jobs.job import JobView, view_of, with_reason
from autoscaler.views.jobs.waits import NextEvent, Reasons, next_event
from autoscaler.views.offerings import OptionView, offerings_of


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, or would wait with these labels.

    `skus` are those that match, in order of preference. `unmatched` says why none does; empty if one does.
    `job` and `next_event` are None for a question about labels alone. `repository` is empty if it had none.
    """

    labels: tuple[str, ...]
    repository: str
    skus: tuple[str, ...] = ()
    unmatched: str = ""
    job: JobView | None = None
    next_event: NextEvent | None = None
    tried: tuple[OptionView, ...] = ()


def explain_job(fleet: Fleet, reasons: Reasons, job: Job) -> Explanation:
    """Return why a job waits, or what became of it.

    O(log jobs + classes + booting machines + offerings of its SKUs).
    """
    view = view_of(fleet, reasons, job)
    demand, over = job.demand, job.state is JobState.COMPLETED
    if demand is None:
        return _explain_unmatched(fleet.catalogue, job, view)
    return Explanation(
        labels=job.labels,
        repository=job.repository,
        skus=demand.skus,
        job=view,
        next_event=next_event(fleet, job, view.wait) if view.wait is not None else None,
        tried=tuple(offerings_of(fleet, demand.skus)) if not over else (),
    )


def _explain_unmatched(catalogue: Catalogue, job: Job, view: JobView) -> Explanation:
    """Return why no SKU serves a job. If one of this fleet should, its wait has the same reason."""
    code = why_unmatched(catalogue, job.repository, job.labels)
    if code is not None and job.state is JobState.QUEUED:
        view = with_reason(view, _reason(catalogue, code, job.repository, job.labels))
    return Explanation(
        labels=job.labels,
        repository=job.repository,
        unmatched=unmatched(catalogue, job.repository, job.labels),
        job=view,
    )


def explain_labels(fleet: Fleet, repository: str | None, labels: Sequence[str]) -> Explanation:
    """Return which SKUs would run a job of `owner/name` with these labels, and where they launch now.

    Without a repository, neither the scopes nor the `access` of the SKUs count.
    """
    catalogue = fleet.catalogue
    if repository is None:
        wanted = normalise_labels(labels)
        skus = tuple(sku.name for sku in catalogue.skus.values() if fits(sku, wanted))
        why = unmatched_labels(catalogue, labels)
    else:
        demand = classify(catalogue, repository, labels)
        skus = demand.skus if demand is not None else ()
        why = unmatched(catalogue, repository, labels)
    return Explanation(
        labels=tuple(labels),
        repository=repository or "",
        skus=skus,
        unmatched="" if skus else why,
        tried=tuple(offerings_of(fleet, skus)),
    )


def unmatched(catalogue: Catalogue, repository: str, labels: Sequence[str]) -> str:
    """Return why no SKU serves a job, with the label and the SKU that were probably meant."""
    if scope_of(catalogue, repository) is None:
        return f"no scope in github.scopes covers {repository}"
    if classify(catalogue, repository, labels) is not None:
        return "no SKU served these labels while the job was queued"
    code = why_unmatched(catalogue, repository, labels)
    return _reason(catalogue, code, repository, labels).message if code is not None else _HOSTED


_HOSTED = "GitHub's own runners serve these labels"


def unmatched_labels(catalogue: Catalogue, labels: Sequence[str]) -> str:
    """Return why no SKU has these labels, with the label and the SKU that were probably meant."""
    if are_hosted(labels):
        return _HOSTED
    known = are_all_known(catalogue, labels)
    code = Unmatched.NAMES_NO_SKU if known else Unmatched.LABELS
    return _reason(catalogue, code, "", labels).message


def _reason(
    catalogue: Catalogue, code: Unmatched, repository: str, labels: Sequence[str]
) -> Reason:
    """Return why no SKU serves a job, with what was probably meant."""
    if code is Unmatched.ACCESS:
        return Reason(code, (repository,), variant="named")
    hints = ""
    if code is Unmatched.LABELS:
        if close := close_label(catalogue, labels):
            hints = f"; the label {close[0]} is close to {close[1]}, which exists"
        if (meant := nearest_sku(catalogue, labels)) is not None:
            hints += f"; the nearest SKU is {meant}"
    return Reason(code, tuple(labels), hints, variant="named")
