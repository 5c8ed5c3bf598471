"""Which of an account's repositories are read: the most recently active, and no removed one."""

from dataclasses import replace

import pytest

from autoscaler.controller.ports.github_lists import MOST_REPOSITORIES, ListedRepository
from autoscaler.controller.sync_schedule import Kind, Read, staleness
from autoscaler.controller.sync_state import SyncState
from autoscaler.model.catalogue import Scope
from autoscaler.model.events import TimePassed
from tests.controller.test_sync_state import ACTIVE, ENDED, NOW, WIDGETS, Desk, reported
from tests.planner.fleets import catalogue


@pytest.mark.case(
    "more repositories than the controller watches: it watches those with the latest activity",
    topic="GitHub's events",
    source="GitHub: an App's repositories",
)
def test_beyond_the_limit_only_the_most_recently_active_repositories_are_watched() -> None:
    desk = Desk()
    old = [ListedRepository(f"acme/r{n:05}", 100.0 + n) for n in range(2 * MOST_REPOSITORIES)]
    pushed = [replace(one, pushed_at=NOW) for one in old[1000:1020]]
    listed = [*old[:1000], *pushed, *old[1020:]]
    desk.hear(replace(reported(1), repository=old[3].name))
    unwatched = desk.sync_state.listed_repositories("org:acme", listed, desk.ledger.state)
    known = desk.sync_state.known().repositories
    assert unwatched == desk.sync_state.unwatched == MOST_REPOSITORIES
    assert len(known) == MOST_REPOSITORIES
    assert {one.name for one in pushed} | {old[3].name, old[-1].name} <= known.keys()
    assert desk.sync_state.listed_repositories("org:acme", pushed, desk.ledger.state) == 0
    assert desk.sync_state.unwatched == 0


@pytest.mark.case(
    "a repository is deleted, archived or taken from the App, during its job or after it",
    topic="GitHub's events",
    source="GitHub: an App's repositories",
)
def test_a_removed_repository_is_not_read_after_its_jobs_have_ended() -> None:
    desk = Desk()
    both = [ListedRepository(WIDGETS, NOW), ListedRepository("acme/old", NOW)]
    desk.sync_state.listed_repositories("org:acme", both, desk.ledger.state)
    desk.hear(replace(reported(1), repository="acme/old"))
    for _ in range(2):
        desk.sync_state.listed_repositories("org:acme", both[:1], desk.ledger.state)
        assert "acme/old" in desk.sync_state.known().repositories, "its job may still be served"
    desk.hear(replace(reported(1, ENDED), repository="acme/old"))
    desk.ledger.apply(TimePassed(NOW + 3600.0))
    assert not desk.ledger.state.jobs
    desk.sync_state.look_at(desk.ledger.state, NOW + 3600.0)
    desk.sync_state.listed_repositories("org:acme", both[:1], desk.ledger.state)
    assert set(desk.sync_state.known().repositories) == {WIDGETS}


def test_runs_of_a_removed_repository_do_not_count_for_staleness() -> None:
    """The App may not read their jobs any more, so these runs would never end."""
    desk = Desk()
    both = [ListedRepository(WIDGETS, NOW), ListedRepository("acme/old", NOW)]
    desk.sync_state.listed_repositories("org:acme", both, desk.ledger.state)
    desk.sync_state.listed_runs("acme/old", [ACTIVE], NOW)
    later = NOW + 3600.0
    for _ in range(2):
        desk.sync_state.was_read(Read(Kind.REPOSITORIES, "org:acme"), later)
        desk.sync_state.listed_repositories("org:acme", both[:1], desk.ledger.state)
        desk.sync_state.was_read(Read(Kind.NEWEST, WIDGETS), later)
        assert not desk.sync_state.known().runs
        assert staleness(desk.sync_state.known(), later) == 0.0
        # This list was being read when the repository was removed.
        desk.sync_state.listed_runs("acme/old", [ACTIVE], NOW)


@pytest.mark.case(
    "one of an account's Apps is suspended, limited or not permitted: the repositories that the "
    "other Apps see are found",
    topic="GitHub's events",
    source="GitHub: suspending an installation",
)
def test_an_incomplete_list_adds_repositories_and_removes_none() -> None:
    desk = Desk()
    state = desk.ledger.state
    desk.sync_state.listed_repositories("org:acme", [ListedRepository(WIDGETS, 5.0)], state)
    other = [ListedRepository("acme/other", 7.0)]
    desk.sync_state.listed_repositories("org:acme", other, state, whole=False)
    assert desk.sync_state.known().repositories == {WIDGETS: 5.0, "acme/other": 7.0}
    desk.sync_state.listed_repositories("org:acme", other, state)
    assert desk.sync_state.known().repositories == {"acme/other": 7.0}


def test_the_list_of_one_scope_removes_no_repository_of_another() -> None:
    desk = Desk(replace(catalogue(), scopes=(Scope("acme", "tools"), Scope("acme", None))))
    desk.sync_state = SyncState("acme", ["repo:acme/tools", "org:acme"], NOW)
    state = desk.ledger.state
    desk.sync_state.listed_repositories("repo:acme/tools", [ListedRepository("acme/tools")], state)
    desk.sync_state.listed_repositories("org:acme", [ListedRepository(WIDGETS)], state)
    desk.sync_state.listed_repositories("org:acme", [], state)
    assert set(desk.sync_state.known().repositories) == {"acme/tools"}
