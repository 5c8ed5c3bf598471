"""Why does my job wait: which SKUs match it, what was tried, and what happens next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoscaler.model.catalogue import Catalogue, Offering
from autoscaler.model.cooldowns import (
    Cooldown,
    active_cooldown,
    boots_key,
    capacity_type_key,
    exits_key,
    launch_option_key,
    offering_key,
    open_circuit,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.jobs.demand import classify, fits, normalise_labels, scope_of
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.operator_holds import (
    NO_END,
    WHOLE_FLEET,
    launch_hold,
    provider_target,
    sku_target,
)
from autoscaler.model.unmatched import (
    Unmatched,
    are_all_known,
    are_hosted,
    close_label,
    nearest_sku,
    why_unmatched,
)
from autoscaler.views.jobs import JobView, view_of
from autoscaler.views.next_event import NextEvent, next_event
from autoscaler.views.unmatched import with_reason
from autoscaler.views.waits import Reasons


@dataclass(frozen=True, slots=True)
class OptionView:
    """One offering of a launch option, in order of preference.

    `on_hold` is why it is not used now: the provider's words, or which operator paused it; empty if a machine
    may be launched there. `until` is when the hold ends, None if an operator ends it. `failures` is how many
    failures in a row led to it.
    """

    sku: str
    option: int
    offering: str
    dollars_per_hour: float
    on_hold: str
    until: Instant | None
    failures: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, or would wait with these labels.

    `skus` are those that match, in order of preference. `unmatched` says why none does; empty if one does.
    `job` and `next_event` are None for a question about labels alone. `repository` is empty if it had none.
    """

    labels: tuple[str, ...]
    repository: str
    skus: tuple[str, ...]
    unmatched: str
    job: JobView | None
    next_event: NextEvent | None
    tried: tuple[OptionView, ...]


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
        unmatched="",
        job=view,
        next_event=next_event(fleet, job, view.wait) if view.wait is not None else None,
        tried=tuple(offerings_of(fleet, demand.skus)) if not over else (),
    )


def _explain_unmatched(catalogue: Catalogue, job: Job, view: JobView) -> Explanation:
    """Return why no SKU serves a job. If one of this fleet should, its wait has the same reason."""
    message = unmatched(catalogue, job.repository, job.labels)
    code = why_unmatched(catalogue, job.repository, job.labels)
    if code is not None and job.state is JobState.QUEUED:
        view = with_reason(view, code, message)
    return Explanation(
        labels=job.labels,
        repository=job.repository,
        skus=(),
        unmatched=message,
        job=view,
        next_event=None,
        tried=(),
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
        job=None,
        next_event=None,
        tried=tuple(offerings_of(fleet, skus)),
    )


def unmatched(catalogue: Catalogue, repository: str, labels: Sequence[str]) -> str:
    """Return why no SKU serves a job, with the label and the SKU that were probably meant."""
    if scope_of(catalogue, repository) is None:
        return f"no scope in github.scopes covers {repository}"
    if classify(catalogue, repository, labels) is not None:
        return "no SKU served these labels while the job was queued"
    if why_unmatched(catalogue, repository, labels) is Unmatched.ACCESS:
        return f"no SKU with these labels admits {repository} (see access)"
    return unmatched_labels(catalogue, labels)


def unmatched_labels(catalogue: Catalogue, labels: Sequence[str]) -> str:
    """Return why no SKU has these labels, with the label and the SKU that were probably meant."""
    if are_hosted(labels):
        return "GitHub's own runners serve these labels"
    if are_all_known(catalogue, labels):
        return (
            f"the labels {', '.join(labels)} name no SKU; add one, or set unlabelled: true for one"
        )
    meant = nearest_sku(catalogue, labels)
    hint = f"; the nearest SKU is {meant}" if meant is not None else ""
    close = close_label(catalogue, labels)
    typo = f"; the label {close[0]} is close to {close[1]}, which exists" if close else ""
    return f"no SKU has all of the labels {', '.join(labels)}{typo}{hint}"


def offerings_of(fleet: Fleet, skus: Sequence[SkuName]) -> Iterator[OptionView]:
    """Yield the offerings of these SKUs in order of preference, each with the hold on it."""
    for name in skus:
        sku = fleet.catalogue.skus.get(name)
        for index, option in enumerate(sku.launch_options if sku is not None else ()):
            for kind in option.capacity_types:
                for offering in option.offerings:
                    if offering.capacity_type is kind:
                        yield _offering(fleet, name, index, offering)


def _offering(fleet: Fleet, sku: SkuName, option: int, offering: Offering) -> OptionView:
    hold = _hold(fleet, sku, option, offering)
    return OptionView(
        sku=sku,
        option=option,
        offering=offering.key,
        dollars_per_hour=offering.dollars_per_hour,
        on_hold=hold.reason if hold is not None else "",
        until=hold.until if hold is not None and fleet.now < hold.until < NO_END else None,
        failures=hold.failures if hold is not None else 0,
    )


def _hold(fleet: Fleet, sku: SkuName, option: int, offering: Offering) -> Cooldown | None:
    """Return an operator's hold on an offering, else the circuit breaker or hold that ends last."""
    for target in (WHOLE_FLEET, sku_target(sku), provider_target(offering.provider)):
        if (held := launch_hold(fleet.operator_holds, target)) is not None:
            return replace(held, reason=f"{target} is {held.reason}")
    circuits = (exits_key(sku), boots_key(sku), launch_option_key(sku, option))
    keys = (
        throttle_key(offering.provider),
        launch_option_key(sku, option),
        capacity_type_key(offering.provider, offering.capacity_type),
        zone_key(offering.provider, offering.zone),
        offering_key(offering.key),
        sku_offering_key(sku, offering.key),
        quota_key(offering.quota_key),
    )
    rows = (
        *(open_circuit(fleet.cooldowns, key) for key in circuits),
        *(active_cooldown(fleet.cooldowns, key, fleet.now) for key in keys),
    )
    return max((row for row in rows if row is not None), key=lambda row: row.until, default=None)
