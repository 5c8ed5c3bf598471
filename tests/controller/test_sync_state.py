"""What lists add to the ledger: lost events, jobs that GitHub shows no more, and nothing known already."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.github.account_state import (
    ABANDONED_AFTER,
    ASK_AT_ONCE,
    SyncState,
)
from autoscaler.controller.github.read_schedule import UNLISTED_FOR, Kind, Read, Turn, next_reads
from autoscaler.controller.ports.github_lists import (
    MOST_REPOSITORIES,
    ListedRepository,
    ListedRun,
    RunStatus,
)
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import Catalogue, Scope
from autoscaler.model.events import Event, JobAbandoned, JobObserved
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import Job, JobState, RunOrigin
from tests.planner.fleets import catalogue, queued

NOW = 1_000_000.0
WIDGETS = "acme/widgets"
KEY = (WIDGETS, 7)
OWN = RunOrigin(from_fork=False, public=False, branch="main")
ACTIVE = ListedRun(7, RunStatus(False, OWN), "in_progress 1")
OVER = ListedRun(7, RunStatus(True, OWN), "completed 1")
QUEUED, WAITING, STARTED, ENDED = (
    JobState.QUEUED,
    JobState.WAITING,
    JobState.IN_PROGRESS,
    JobState.COMPLETED,
)


def reported(job: int, state: JobState = QUEUED, *labels: str, at: float = NOW) -> JobObserved:
    return replace(queued(job, at, *labels, state=state), run_id=7)


def listed(job: int, state: JobState = QUEUED, *labels: str) -> JobObserved:
    return replace(reported(job, state, *labels), read=True)


class SyncWithLedger:
    """A sync state and its ledger."""

    def __init__(self, known: Catalogue | None = None) -> None:
        self.ledger = Ledger(known or catalogue())
        self.sync_state = SyncState("acme", ["org:acme"], NOW)

    def apply(self, *events: Event) -> None:
        for event in events:
            self.ledger.apply(event)
        self.sync_state.add_known(self.ledger.state, NOW)

    def read(self, *jobs: JobObserved, at: float = NOW) -> tuple[Event, ...]:
        found = self.sync_state.listed_jobs(KEY, jobs, self.ledger.state, at)
        for event in found.events:
            self.ledger.apply(event)
        self.sync_state.add_known(self.ledger.state, at)
        return found.events

    def state(self, job: int) -> JobState:
        return self.ledger.state.jobs[JobId(job)].state


@pytest.fixture
def sync() -> SyncWithLedger:
    made = SyncWithLedger()
    made.sync_state.listed_runs(WIDGETS, [ACTIVE], NOW)
    return made


def test_a_listed_job_without_a_webhook_becomes_demand(sync: SyncWithLedger) -> None:
    assert sync.read(listed(1)) == (listed(1),)
    (queue,) = sync.ledger.state.queues.values()
    assert [job.id for job in queue.values()] == [1]
    assert sync.read(listed(1)) == ()


@pytest.mark.parametrize(
    "seen", [listed(1, QUEUED, "elsewhere"), listed(1, ENDED)], ids=["of others", "over"]
)
def test_listed_jobs_that_are_completed_or_of_no_sku_are_not_stored(
    sync: SyncWithLedger, seen: JobObserved
) -> None:
    assert sync.read(seen) == ()
    assert not sync.ledger.state.jobs


def test_lists_make_up_for_lost_in_progress_and_completed_events(sync: SyncWithLedger) -> None:
    sync.apply(reported(1), reported(2), reported(3, STARTED))
    assert len(sync.read(listed(1, STARTED), listed(2, ENDED), listed(3, ENDED))) == 3
    assert [sync.state(n) for n in (1, 2, 3)] == [STARTED, ENDED, ENDED]


def test_an_older_list_does_not_undo_newer_events(sync: SyncWithLedger) -> None:
    sync.apply(reported(1, STARTED), reported(2, ENDED))
    assert sync.read(listed(1), listed(2), listed(2, STARTED)) == ()


def test_a_missing_runner_name_is_added_once(sync: SyncWithLedger) -> None:
    sync.apply(reported(1, STARTED))
    named = replace(listed(1, STARTED), runner_name=RunnerName("r"))
    assert sync.read(named) == (named,)
    assert sync.read(named) == ()


@pytest.mark.parametrize(("said", "shown"), [(QUEUED, WAITING), (WAITING, QUEUED)])
def test_a_job_that_a_list_contradicts_is_read_itself(
    sync: SyncWithLedger, said: JobState, shown: JobState
) -> None:
    sync.apply(reported(1, said))
    assert sync.read(listed(1, shown)) == (reported(1, shown),)
    assert sync.ledger.state.jobs[JobId(1)].disputed
    assert JobId(1) in sync.ledger.state.reads
    assert sync.read(listed(1, shown)) == ()


@pytest.mark.case(
    "GitHub shows a job as queued for ever although its run is completed",
    topic="GitHub's events",
    source="runs-on#539",
)
def test_a_job_that_stays_queued_in_a_completed_run_stops_being_demand(
    sync: SyncWithLedger,
) -> None:
    sync.apply(reported(1))
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW)
    assert sync.read(listed(1)) == ()
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW + ABANDONED_AFTER - 1.0)
    assert sync.read(listed(1), at=NOW + ABANDONED_AFTER) == ()
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW + ABANDONED_AFTER)
    (given_up,) = sync.read(listed(1), at=NOW + ABANDONED_AFTER)
    assert isinstance(given_up, JobAbandoned)
    assert sync.state(1) is ENDED
    assert not sync.ledger.state.queues
    assert sync.ledger.state.jobs[JobId(1)].conclusion == "stale"
    assert sync.read(listed(1), at=NOW + 120.0) == ()


@pytest.mark.case(
    "a run that seems completed was re-run meanwhile, and too few calls are left to read it",
    topic="GitHub's events",
    source="ARC#4315",
)
def test_a_job_of_a_new_attempt_is_kept_until_its_run_was_read_again(
    sync: SyncWithLedger,
) -> None:
    """If calls are scarce, the jobs of a run may be read twice between two reads of the run."""
    sync.apply(reported(1, STARTED), reported(2))
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW)
    for at in (NOW + 200.0, NOW + 400.0):
        assert sync.read(listed(2), at=at) == ()
    sync.sync_state.listed_runs(WIDGETS, [ACTIVE], NOW + 500.0)
    assert sync.read(listed(2), at=NOW + 500.0) == ()
    assert sync.state(2) is QUEUED


def test_reads_of_completed_runs_are_pruned(sync: SyncWithLedger) -> None:
    sync.sync_state.listed_repositories("org:acme", [ListedRepository(WIDGETS)], sync.ledger.state)
    kinds = (Kind.NEWEST, Kind.QUEUED, Kind.JOBS, Kind.RUN)
    reads = [Read(kind, WIDGETS, 7 if kind in (Kind.JOBS, Kind.RUN) else 0) for kind in kinds]
    for read in reads:
        sync.sync_state.was_read(read, NOW)
    assert set(sync.sync_state.known.turns) == set(reads)
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW)
    sync.sync_state.listed_repositories("org:acme", [], sync.ledger.state)
    sync.read()
    for read in reads:
        # each when its read ends
        sync.sync_state.was_read(read, NOW)
        sync.sync_state.was_not_read(read, NOW, counts=True)
    assert not sync.sync_state.known.turns


def test_jobs_of_a_run_that_is_active_again_are_kept(sync: SyncWithLedger) -> None:
    sync.apply(reported(1))
    for at in (NOW, NOW + 100.0):
        sync.sync_state.listed_runs(WIDGETS, [OVER], at)
        assert sync.read(listed(1), at=at) == ()
        sync.sync_state.listed_runs(WIDGETS, [ACTIVE], at)
        assert sync.read(listed(1), at=at) == ()


def test_queued_jobs_of_a_completed_run_are_not_added(sync: SyncWithLedger) -> None:
    sync.apply(reported(1))
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW)
    sync.read(listed(1), listed(2))
    assert JobId(2) not in sync.ledger.state.jobs


@pytest.mark.case(
    "a run is re-run and its webhooks are lost, and only the list of its jobs shows the new attempt",
    topic="GitHub's events",
    source="ARC#4315",
)
@pytest.mark.parametrize("shown", [QUEUED, WAITING, STARTED])
def test_a_job_of_a_newer_attempt_is_added_although_its_run_was_listed_as_completed(
    sync: SyncWithLedger, shown: JobState
) -> None:
    """Found by seed 800145 of the worlds with clusters: the list of runs was older than that of the jobs."""
    sync.apply(reported(1))
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW)
    again = replace(listed(2, shown), run_attempt=2)
    assert sync.read(replace(listed(1, ENDED), run_attempt=1), again)[1:] == (again,)
    sync.sync_state.listed_runs(WIDGETS, [OVER], NOW + ABANDONED_AFTER)
    assert sync.state(2) is shown
    assert KEY in sync.sync_state.known.runs


def test_abandoning_a_job_that_has_started_changes_nothing(sync: SyncWithLedger) -> None:
    sync.apply(reported(1, STARTED))
    sync.ledger.apply(JobAbandoned(NOW, JobId(1), "too late"))
    sync.ledger.apply(JobAbandoned(NOW, JobId(9), "unknown"))
    assert sync.state(1) is STARTED


def test_jobs_missing_from_a_list_are_read_a_few_at_a_time(sync: SyncWithLedger) -> None:
    sync.apply(*(reported(n) for n in range(1, 6)))
    fresh = sync.sync_state.listed_jobs(KEY, [listed(1)], sync.ledger.state, NOW)
    assert fresh.ask == ()
    later = sync.sync_state.listed_jobs(KEY, [listed(1)], sync.ledger.state, NOW + 120.0)
    assert later.ask == (2, 3, 4)
    assert len(later.ask) == ASK_AT_ONCE
    assert sync.sync_state.listed_jobs(KEY, [listed(1)], sync.ledger.state, NOW + 121.0).ask == (5,)


def test_runs_are_remembered_from_lists_and_from_the_ledger_until_they_are_over(
    sync: SyncWithLedger,
) -> None:
    sync.apply(replace(reported(1), run_id=8), replace(reported(2, QUEUED, "elsewhere"), run_id=9))
    assert set(sync.sync_state.known.runs) == {KEY, (WIDGETS, 8)}
    sync.sync_state.listed_runs(WIDGETS, [OVER, replace(OVER, id=8), replace(OVER, id=10)], NOW)
    assert sync.sync_state.known.runs[KEY].changed
    sync.read(listed(3, ENDED))
    assert set(sync.sync_state.known.runs) == {(WIDGETS, 8)}


@pytest.mark.case(
    "a run's `changed` mark is reset after its jobs were read",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
def test_a_changed_run_is_read_at_its_normal_interval_after_its_jobs_were_read(
    sync: SyncWithLedger,
) -> None:
    """Otherwise a run marked as changed would be read every 15 s for ever, before all others."""
    sync.apply(reported(1))
    sync.sync_state.listed_runs(WIDGETS, [ACTIVE], NOW)
    sync.sync_state.listed_runs(WIDGETS, [replace(ACTIVE, mark="in_progress 2")], NOW)
    assert sync.sync_state.known.runs[KEY].changed
    sync.read(listed(1))
    assert not sync.sync_state.known.runs[KEY].changed
    sync.sync_state.listed_runs(WIDGETS, [replace(ACTIVE, mark="in_progress 2")], NOW)
    assert not sync.sync_state.known.runs[KEY].changed


def test_repositories_outside_the_scopes_use_no_place_in_the_limit() -> None:
    scope = Scope("acme", None, repositories=("acme/w*",))
    sync = SyncWithLedger(replace(catalogue(), scopes=(scope,)))
    others = [ListedRepository(f"acme/other{n}") for n in range(MOST_REPOSITORIES)]
    many = [ListedRepository(f"acme/w{n}") for n in range(MOST_REPOSITORIES)]
    sync.sync_state.listed_repositories("org:acme", [*others, *many, *many], sync.ledger.state)
    assert set(sync.sync_state.known.repositories) == {one.name for one in many}
    sync.sync_state.listed_repositories("org:acme", [*many, *others[:1]], sync.ledger.state)
    assert len(sync.sync_state.known.repositories) == MOST_REPOSITORIES


def test_failed_reads_are_counted_until_one_succeeds() -> None:
    sync = SyncWithLedger()
    scope = Read(Kind.REPOSITORIES, "org:acme")
    struck = [sync.sync_state.was_not_read(scope, NOW + n, counts=n != 1) for n in range(3)]
    assert struck == [1, 1, 2]
    sync.sync_state.was_read(scope, NOW + 3.0, 4)
    sync.sync_state.was_not_read(scope, NOW + 4.0, counts=True)
    assert sync.sync_state.known.turns == {scope: Turn(NOW + 4.0, NOW + 3.0, 1, 4)}


@pytest.mark.case(
    "one repository, spelled in two ways",
    topic="GitHub's events",
    source="GitHub: REST API, repositories",
)
def test_a_repository_name_in_different_case_is_read_once() -> None:
    """The configuration, webhooks and lists may write a name in different case."""
    sync = SyncWithLedger(replace(catalogue(), scopes=(Scope("acme", "Widgets"),)))
    sync.sync_state = SyncState("acme", ["repo:acme/Widgets"], NOW)
    shown = [ListedRepository("acme/Widgets")]
    sync.sync_state.listed_repositories("repo:acme/Widgets", shown, sync.ledger.state)
    sync.sync_state.listed_runs("acme/Widgets", [ACTIVE], NOW)
    sync.apply(reported(1))
    assert sync.ledger.state.jobs[JobId(1)].repository == WIDGETS
    sync.sync_state.listed_repositories("repo:acme/Widgets", shown, sync.ledger.state)
    known = sync.sync_state.known
    assert (set(known.repositories), set(known.runs)) == ({"acme/Widgets"}, {("acme/Widgets", 7)})


def test_a_run_missing_from_the_lists_is_read_itself(sync: SyncWithLedger) -> None:
    late, itself = NOW + UNLISTED_FOR + 1.0, Read(Kind.RUN, *KEY)
    assert itself not in next_reads(sync.sync_state.known, NOW + UNLISTED_FOR, 99)
    assert itself in next_reads(sync.sync_state.known, late, 99)
    sync.sync_state.run_is_not_there(*KEY, late)
    assert KEY not in sync.sync_state.known.runs
    sync.apply(reported(1))
    sync.sync_state.run_is_not_there(*KEY, late)
    assert itself not in next_reads(sync.sync_state.known, late, 99)


def test_the_repositories_of_the_scope_have_their_last_activity() -> None:
    scopes = (Scope("acme", "tools"), Scope("acme", None, repositories=("acme/w*",)))
    sync = SyncWithLedger(replace(catalogue(), scopes=scopes))
    names = [WIDGETS, "acme/world", "acme/tools", "acme/other"]
    found = [ListedRepository(name, 5.0) for name in names]
    sync.sync_state.listed_repositories("org:acme", found, sync.ledger.state)
    assert sync.sync_state.known.repositories == {WIDGETS: 5.0, "acme/world": 5.0}
    sync.apply(reported(1), replace(queued(2, NOW), repository="globex/else"))
    sync.sync_state.was_read(Read(Kind.NEWEST, "acme/world"), NOW)
    sync.sync_state.listed_repositories("org:acme", found[:1], sync.ledger.state)
    assert sync.sync_state.known.repositories == {WIDGETS: NOW}
    assert sync.sync_state.known.turns == {}


class Unread(dict[JobId, Job]):
    """Jobs that must not be scanned."""

    def __iter__(self) -> Iterator[JobId]:
        raise AssertionError("all jobs are looked through")

    def values(self) -> Any:
        raise AssertionError("all jobs are looked through")

    items = values


def test_the_sync_state_follows_the_ledger_without_scanning_every_job() -> None:
    """With 200,000 jobs a scan blocked the event loop for 214 ms every 5 s."""
    sync = SyncWithLedger()
    sync.apply(*(replace(reported(n), run_id=n % 3) for n in range(1, 10)))
    state = sync.ledger.state
    state.jobs = Unread(state.jobs)
    sync.ledger.apply(replace(reported(10), run_id=3, repository="acme/tools", at=NOW + 5.0))
    sync.ledger.apply(replace(reported(1, ENDED), run_id=1, at=NOW + 5.0))
    sync.sync_state.add_known(state, NOW + 5.0)
    known = sync.sync_state.known
    assert set(known.runs) == {(WIDGETS, 0), (WIDGETS, 1), (WIDGETS, 2), ("acme/tools", 3)}
    assert known.repositories == {WIDGETS: NOW + 5.0, "acme/tools": NOW + 5.0}
    shown = sync.sync_state.listed_jobs((WIDGETS, 1), [], state, NOW + 120.0)
    assert shown.ask == (4, 7)


def test_a_changed_job_still_counts_in_the_next_list(
    sync: SyncWithLedger,
) -> None:
    sync.apply(reported(1))
    job = sync.ledger.state.jobs[JobId(1)]
    with sync.ledger.state.changing(job):
        job.read_at = NOW
    later = NOW + ABANDONED_AFTER + UNLISTED_FOR
    assert sync.sync_state.listed_jobs(KEY, [], sync.ledger.state, later).ask == (JobId(1),)
