"""The pages of the console: from the answers of `FleetQueries` to HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.console.charts import machines_chart, waiting_chart
from autoscaler.console.links import GitHubPages
from autoscaler.console.lists import AGES, ListPage
from autoscaler.console.rendering import Frame, Templates
from autoscaler.console.runbooks import read_runbooks
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.reasons.spells import FaultSpell
from autoscaler.model.reasons.table import cause_of
from autoscaler.model.wait_objectives import total
from autoscaler.model.wording import in_words
from autoscaler.views.cost import CostView
from autoscaler.views.grid import Grid, RepositoryView
from autoscaler.views.jobs.explanation import Explanation
from autoscaler.views.jobs.job import JobView
from autoscaler.views.jobs.past import Past, job_stages, machine_stages
from autoscaler.views.machines import MachineView
from autoscaler.views.offerings import OptionView
from autoscaler.views.overview import Overview
from autoscaler.views.quotas import QuotaView
from autoscaler.views.status import SkuView, StatusView

MOST_FAULTS = 3
"""Faults that the first page shows at once, for a phone. The others are one click away."""

MOST_SKUS = 3
"""SKUs with waiting jobs, and SKUs with machines, that the first page shows at once, for a phone."""


@dataclass(frozen=True, slots=True)
class SkuPage:
    """What the page of a SKU shows."""

    overview: Overview
    sku: SkuView
    offerings: Sequence[OptionView]
    quotas: Sequence[QuotaView]
    waiting: Sequence[JobView]
    running: Sequence[JobView]
    machines: Sequence[MachineView]


@dataclass(frozen=True, slots=True)
class JobPage:
    """What the page of a job shows. `job` and `explained` are None if only its history is known."""

    id: JobId
    job: JobView | None
    explained: Explanation | None
    past: Past
    history: Sequence[HistoryRow]

    @property
    def gets_no_machine(self) -> bool:
        """Return True if the job has not started, and no SKU serves it."""
        if self.explained is None or self.job is None or not self.explained.unmatched:
            return False
        return self.job.state in {JobState.WAITING, JobState.QUEUED}


@dataclass(frozen=True, slots=True)
class MachinePage:
    """What the page of a machine shows. `machine` is None if only its history is known."""

    name: str
    machine: MachineView | None
    history: Sequence[HistoryRow]


class Pages:
    """Writes pages. Thread-safe: each method depends on its arguments alone.

    `fleet` is the fleet's name, `assets` the addresses of the static files by name.
    """

    def __init__(self, fleet: str, github: GitHubPages, assets: Mapping[str, str]) -> None:
        self._fleet = fleet
        self._templates = Templates(github, assets)
        self._runbooks = read_runbooks()

    def frame(self, viewer: str, at: Instant) -> Frame:
        """Return what is around each page of this reader, with data of this moment."""
        return Frame(self._fleet, viewer, at)

    def sign_in(self, problem: str, wanted: str) -> str:
        """Return the form for the token. `wanted` is the path to go to afterwards."""
        return self._templates.render("sign_in", fleet=self._fleet, problem=problem, wanted=wanted)

    def reload(self) -> str:
        """Return a page that loads its address again at once."""
        return self._templates.render("reload")

    def message(self, title: str, text: str, frame: Frame) -> str:
        """Return a page with one sentence."""
        return self._templates.render("message", frame, title=title, text=text)

    def overview(self, overview: Overview, frame: Frame) -> str:
        """Return the first page: is the fleet fine, and if not, why."""
        found = overview.status.faults
        return self._templates.render(
            "overview",
            frame,
            overview=overview,
            faults=found,
            is_bad=any(one.recovered_at is None for one in found),
            most_faults=MOST_FAULTS,
            most_skus=MOST_SKUS,
            verdict=verdict(overview.status),
            hour=total(overview.hour),
            day=total(overview.day),
            within=in_words(overview.objectives[0].seconds) if overview.objectives else "",
            machines_chart=machines_chart(overview.samples),
            waiting_chart=waiting_chart(overview.samples),
        )

    def sku(self, page: SkuPage, frame: Frame) -> str:
        """Return the page of a SKU: its faults, offerings, jobs and machines."""
        found = [one for one in page.overview.status.faults if page.sku.sku in one.skus]
        return self._templates.render("sku", frame, page=page, sku=page.sku, faults=found)

    def jobs(self, page: ListPage[JobView], state: str, frame: Frame) -> str:
        """Return a list of jobs that wait, run or match no SKU."""
        narrowed = bool(page.query.keys() - {"state", "page"})
        return self._templates.render(
            "jobs", frame, list=page, state=state, ages=AGES, narrowed=narrowed
        )

    def job(self, page: JobPage, frame: Frame) -> str:
        """Return the page of a job: why it waits or what became of it, its stages and its history."""
        queued = page.job.queued_at if page.job is not None else page.history[0].at
        stages = () if page.gets_no_machine else job_stages(page.history, queued)
        return self._templates.render("job", frame, page=page, job=page.job, stages=stages)

    def machines(self, page: ListPage[MachineView], frame: Frame) -> str:
        """Return a list of machines."""
        narrowed = bool(page.query.keys() - {"state", "page"})
        return self._templates.render("machines", frame, list=page, narrowed=narrowed)

    def machine(self, page: MachinePage, frame: Frame) -> str:
        """Return the page of a machine: its stages and its history."""
        created = page.machine.created_at if page.machine is not None else page.history[0].at
        stages = machine_stages(page.history, created)
        return self._templates.render(
            "machine", frame, page=page, machine=page.machine, stages=stages
        )

    def explain(self, found: Explanation | None, frame: Frame) -> str:
        """Return which SKU would run a job with certain labels, or only the form that asks for them."""
        return self._templates.render("explain", frame, found=found)

    def repositories(self, found: Sequence[RepositoryView], frame: Frame) -> str:
        """Return the list of repositories."""
        return self._templates.render("repositories", frame, repositories=found)

    def grid(self, found: Grid, frame: Frame) -> str:
        """Return a repository's commits against its jobs."""
        return self._templates.render("grid", frame, grid=found)

    def faults(self, found: Sequence[FaultSpell], frame: Frame) -> str:
        """Return the faults of the last 30 days."""
        causes = {one.code: cause_of(one.code) for one in found}
        return self._templates.render("faults", frame, spells=found, causes=causes)

    def cost(self, found: CostView, frame: Frame) -> str:
        """Return what the machines cost now."""
        return self._templates.render("cost", frame, cost=found)

    def runbook(self, name: str, frame: Frame) -> str | None:
        """Return a runbook, or None if there is none of this name."""
        runbook = self._runbooks.get(name)
        if runbook is None:
            return None
        return self._templates.render("runbook", frame, runbook=runbook)


def verdict(status: StatusView) -> str:
    """Return one sentence: whether the fleet is fine, and if not, what is wrong first."""
    present = [fault for fault in status.faults if fault.recovered_at is None]
    if present:
        more = f", and {len(present) - 1} more" if len(present) > 1 else ""
        return f"{present[0].name}{more}"
    if status.overdue:
        of = f"{status.overdue:,} of {_jobs(status.waiting)}"
        return f"{of} for longer than the objective"
    if status.waiting:
        return f"Fine: {_jobs(status.waiting)}, and machines are on their way"
    return "Fine: no job waits for a machine"


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count:,} jobs wait"
