"""Which of an account's repositories are read: the most recently active, and no removed one."""

from dataclasses import replace

import pytest

from autoscaler.controller.github.account_state import SyncState
from autoscaler.controller.github.read_schedule import Kind, Read, staleness
from autoscaler.controller.ports.github_lists import MOST_REPOSITORIES, ListedRepository
from autoscaler.model.catalogue import Scope
from autoscaler.model.events import TimePassed
from tests.controller.test_sync_state import ACTIVE, ENDED, NOW, WIDGETS, SyncWithLedger, reported
from tests.planner.fleets import catalogue


@pytest.mark.case(
    "more repositories than the controller watches: it watches those with the latest activity",
    topic="GitHub's events",
    source="GitHub: an App's repositories",
)
def test_beyond_the_limit_only_the_most_recently_active_repositories_are_watched() -> None:
    sync = SyncWithLedger()
    old = [ListedRepository(f"acme/r{n:05}", 100.0 + n) for n in range(2 * MOST_REPOSITORIES)]
    pushed = [replace(one, pushed_at=NOW) for one in old[1000:1020]]
    listed = [*old[:1000], *pushed, *old[1020:]]
    sync.apply(replace(reported(1), repository=old[3].name))
    unwatched = sync.sync_state.listed_repositories("org:acme", listed, sync.ledger.state)
    known = sync.sync_state.known.repositories
    assert unwatched == sync.sync_state.unwatched == MOST_REPOSITORIES
    assert len(known) == MOST_REPOSITORIES
    assert {one.name for one in pushed} | {old[3].name, old[-1].name} <= known.keys()
    assert sync.sync_state.listed_repositories("org:acme", pushed, sync.ledger.state) == 0
    assert sync.sync_state.unwatched == 0


@pytest.mark.case(
    "a repository is deleted, archived or taken from the App, during its job or after it",
    topic="GitHub's events",
    source="GitHub: an App's repositories",
)
def test_a_removed_repository_is_not_read_after_its_jobs_have_ended() -> None:
    sync = SyncWithLedger()
    both = [ListedRepository(WIDGETS, NOW), ListedRepository("acme/old", NOW)]
    sync.sync_state.listed_repositories("org:acme", both, sync.ledger.state)
    sync.apply(replace(reported(1), repository="acme/old"))
    for _ in range(2):
        sync.sync_state.listed_repositories("org:acme", both[:1], sync.ledger.state)
        assert "acme/old" in sync.sync_state.known.repositories, "its job may still be served"
    sync.apply(replace(reported(1, ENDED), repository="acme/old"))
    sync.ledger.apply(TimePassed(NOW + 3600.0))
    assert not sync.ledger.state.jobs
    sync.sync_state.add_known(sync.ledger.state, NOW + 3600.0)
    sync.sync_state.listed_repositories("org:acme", both[:1], sync.ledger.state)
    assert set(sync.sync_state.known.repositories) == {WIDGETS}


def test_runs_of_a_removed_repository_do_not_count_for_staleness() -> None:
    """The App may not read their jobs any more, so these runs would never end."""
    sync = SyncWithLedger()
    both = [ListedRepository(WIDGETS, NOW), ListedRepository("acme/old", NOW)]
    sync.sync_state.listed_repositories("org:acme", both, sync.ledger.state)
    sync.sync_state.listed_runs("acme/old", [ACTIVE], NOW)
    later = NOW + 3600.0
    for _ in range(2):
        sync.sync_state.was_read(Read(Kind.REPOSITORIES, "org:acme"), later)
        sync.sync_state.listed_repositories("org:acme", both[:1], sync.ledger.state)
        sync.sync_state.was_read(Read(Kind.NEWEST, WIDGETS), later)
        assert not sync.sync_state.known.runs
        assert staleness(sync.sync_state.known, later) == 0.0
        # This list was being read when the repository was removed.
        sync.sync_state.listed_runs("acme/old", [ACTIVE], NOW)


@pytest.mark.case(
    "one of an account's Apps is suspended, limited or not permitted: the repositories that the "
    "other Apps see are found",
    topic="GitHub's events",
    source="GitHub: suspending an installation",
)
def test_an_incomplete_list_adds_repositories_and_removes_none() -> None:
    sync = SyncWithLedger()
    state = sync.ledger.state
    sync.sync_state.listed_repositories("org:acme", [ListedRepository(WIDGETS, 5.0)], state)
    other = [ListedRepository("acme/other", 7.0)]
    sync.sync_state.listed_repositories("org:acme", other, state, whole=False)
    assert sync.sync_state.known.repositories == {WIDGETS: 5.0, "acme/other": 7.0}
    sync.sync_state.listed_repositories("org:acme", other, state)
    assert sync.sync_state.known.repositories == {"acme/other": 7.0}


def test_the_list_of_one_scope_removes_no_repository_of_another() -> None:
    sync = SyncWithLedger(
        replace(catalogue(), scopes=(Scope("acme", "tools"), Scope("acme", None)))
    )
    sync.sync_state = SyncState("acme", ["repo:acme/tools", "org:acme"], NOW)
    state = sync.ledger.state
    sync.sync_state.listed_repositories("repo:acme/tools", [ListedRepository("acme/tools")], state)
    sync.sync_state.listed_repositories("org:acme", [ListedRepository(WIDGETS)], state)
    sync.sync_state.listed_repositories("org:acme", [], state)
    assert set(sync.sync_state.known.repositories) == {"acme/tools"}
