"""The indexes of active repositories and of runs with open jobs match the records."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.ledger.records.activity import AccountActivity
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.catalogue import Scope
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from tests.ledger.builders import World
from tests.planner.fleets import catalogue

OPEN = {JobState.QUEUED, JobState.WAITING, JobState.IN_PROGRESS}
REPOSITORIES = ("acme/widgets", "Acme/Widgets", "acme/tools", "globex/tools")
SCOPES = (Scope("acme", None), Scope("globex", None))


def by_definition(state: LedgerState) -> dict[str, tuple[dict[str, int], dict[object, set[int]]]]:
    """Return by account the jobs of each repository, and the open jobs of each run that count."""
    found: dict[str, tuple[dict[str, int], dict[object, set[int]]]] = {}
    for job in state.jobs.values():
        name = job.repository.lower()
        repositories, runs = found.setdefault(name.split("/")[0], ({}, {}))
        repositories[name] = repositories.get(name, 0) + 1
        if job.state in OPEN and job.demand is not None and job.run_id is not None:
            runs.setdefault((name, job.run_id), set()).add(job.id)
    return found


def as_kept(state: LedgerState) -> dict[str, tuple[dict[str, int], dict[object, set[int]]]]:
    return {
        name: (
            {repository: kept.jobs for repository, kept in account.repositories.items()},
            {run: set(jobs) for run, jobs in account.runs.items()},
        )
        for name, account in state.activity.accounts.items()
    }


observations = st.tuples(
    st.integers(1, 6),
    st.sampled_from(list(JobState)),
    st.sampled_from(REPOSITORIES),
    st.sampled_from((("gpu",), ("unserved",))),
    st.sampled_from((None, 7, 8)),
    st.booleans(),
    st.sampled_from((0.0, 1.0, 400.0)),
)


@given(st.lists(observations, max_size=25))
def test_activity_follows_from_the_jobs(
    said: list[tuple[int, JobState, str, tuple[str, ...], int | None, bool, float]],
) -> None:
    world = World(replace(catalogue(), scopes=SCOPES))
    for job, state, repository, labels, run, read, later in said:
        world.after(later)
        world.ledger.apply(
            e.JobObserved(
                world.now, JobId(job), state, repository, labels, world.now, run_id=run, read=read
            )
        )
        assert as_kept(world.state) == by_definition(world.state)
        for one in world.state.jobs.values():
            account = world.state.activity.of(one.repository.partition("/")[0].lower())
            assert account.repositories[one.repository.lower()].updated_at >= one.updated_at
    world.after(3 * 86_400.0)
    assert as_kept(world.state) == by_definition(world.state)
    for one in tuple(world.state.jobs.values()):
        world.state.drop(one)
    assert world.state.activity.of("acme") == AccountActivity()
    assert not world.state.activity.accounts


def test_a_delivery_of_a_repository_updates_when_it_was_last_active() -> None:
    world = World()
    world.queue(1)
    world.after(30.0).queue(2)
    known = world.state.activity.of("acme").repositories[world.job(1).repository]
    assert known.updated_at == world.now
    world.after(30.0).observe(1, JobState.IN_PROGRESS)
    known = world.state.activity.of("acme").repositories[world.job(1).repository]
    assert (known.updated_at, known.jobs) == (world.now, 2)
