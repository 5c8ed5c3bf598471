"""The first page of the console: is the fleet fine, and if not, why."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant
from autoscaler.model.wait_objectives import Starts, WaitObjective
from autoscaler.views.jobs.job import JobView, undecided_jobs, view_of
from autoscaler.views.jobs.waiting import oldest_of
from autoscaler.views.jobs.waits import NextEvent, Reasons, next_event
from autoscaler.views.status import StatusView


@dataclass(frozen=True, slots=True)
class OldestJob:
    """The oldest waiting job of a SKU, and what happens next to it."""

    job: JobView
    next_event: NextEvent


@dataclass(frozen=True, slots=True)
class Sample:
    """Jobs and machines of the whole fleet from one moment (Unix seconds) on, until the next sample.

    `booting` includes requested machines, `working` are those with an assignment, and `ending` those that
    exited or are being terminated.
    """

    at: Instant
    waiting: int
    booting: int
    ready: int
    working: int
    ending: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The fleet at one moment, and its last hours.

    `objectives` are those of waiting; a SKU without one has no starts.
    `oldest` has an entry for each SKU with a waiting job. `hour` and `day` are the starts of jobs by SKU.
    `since` is when the controller started to count (Unix seconds): a restart forgets what was before.
    """

    status: StatusView
    oldest: Mapping[str, OldestJob]
    hour: Mapping[str, Starts]
    day: Mapping[str, Starts]
    samples: tuple[Sample, ...]
    since: Instant
    objectives: tuple[WaitObjective, ...]


def oldest_jobs(fleet: Fleet, reasons: Reasons) -> dict[str, OldestJob]:
    """Return the oldest waiting job of each SKU.

    O(classes + SKUs x booting machines), and O(jobs) if GitHub or `access` has to decide about some jobs.
    """
    found = oldest_of(fleet, reasons, undecided_jobs(fleet, None))
    return {
        sku: OldestJob(view_of(fleet, reasons, one.job), next_event(fleet, one.job, one.wait))
        for sku, one in found.items()
    }
