"""Which list is read next."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.github.read_schedule import (
    ACTIVE_FOR,
    CHANGED_EVERY,
    EACH_CALL,
    FIRST_AGAIN,
    INTERVALS,
    RUNNERS_SOON,
    SELDOM,
    Kind,
    Known,
    KnownRun,
    Read,
    Turn,
    next_reads,
    staleness,
)
from autoscaler.model.identifiers import Instant

NOW: Instant = 100_000.0
BEGAN: Instant = 50_000.0
SCOPE = "org:acme"
WIDGETS = "acme/widgets"


def everything_read(known: Known, at: Instant) -> dict[Read, Instant]:
    """Return the state in which everything was read at one moment, new repositories after all repositories."""
    never = Known(BEGAN, known.scopes, known.repositories, known.runs)
    first = dict.fromkeys(next_reads(never, NOW, 10_000), at)
    listed = {read: at for read in first if read.kind is Kind.REPOSITORIES}
    then = Known(BEGAN, known.scopes, known.repositories, known.runs, turns(listed))
    return first | dict.fromkeys(next_reads(then, NOW, 10_000), at)


def a_run(known_at: Instant = BEGAN, *, changed: bool = False) -> KnownRun:
    """A run that all lists go on to show."""
    return KnownRun(known_at, NOW + 10_000.0, changed)


def turns(read_at: Mapping[Read, Instant]) -> dict[Read, Turn]:
    """Return turns in which each try succeeded."""
    return {read: Turn(at, at) for read, at in read_at.items()}


def reads(
    known: Known, read_at: Mapping[Read, Instant], now: Instant, most: int = 99
) -> list[Read]:
    whole = Known(BEGAN, known.scopes, known.repositories, known.runs, turns(read_at))
    return next_reads(whole, now, most)


def jobs(run: int, repository: str = WIDGETS) -> Read:
    return Read(Kind.JOBS, repository, run)


def test_each_kind_is_read_at_its_own_interval() -> None:
    known = Known(
        BEGAN, {SCOPE: False}, {WIDGETS: NOW}, {(WIDGETS, 1): KnownRun(BEGAN, listed_at=BEGAN)}
    )
    read_at = everything_read(known, NOW)
    assert {read.kind for read in read_at} == set(Kind)
    for kind, interval in INTERVALS.items():
        before = {read.kind for read in reads(known, read_at, NOW + interval - 0.1)}
        after = {read.kind for read in reads(known, read_at, NOW + interval)}
        assert kind not in before
        assert kind in after


def test_a_run_that_was_never_read_goes_before_every_late_read() -> None:
    known = Known(
        BEGAN,
        {SCOPE: True},
        {WIDGETS: NOW},
        {(WIDGETS, 1): a_run(), (WIDGETS, 2): a_run(NOW)},
    )
    read_at = everything_read(known, BEGAN)
    del read_at[jobs(2)]
    assert reads(known, read_at, NOW, most=1) == [jobs(2)]


def test_reads_that_find_runs_go_first_and_delay_the_others_for_a_bounded_time() -> None:
    runs = {(WIDGETS, n): a_run(changed=n == 3) for n in range(1, 6)}
    known = Known(BEGAN, {}, {WIDGETS: NOW}, runs)
    read_at = everything_read(known, NOW - 60.0)
    first = reads(known, read_at, NOW, most=2)
    assert set(first) == {jobs(3), Read(Kind.NEWEST, WIDGETS)}
    read_at |= dict.fromkeys(first, NOW - CHANGED_EVERY)
    read_at[jobs(4)] = NOW - 60 * INTERVALS[Kind.JOBS]
    assert reads(known, read_at, NOW, most=1) == [jobs(4)]


def test_with_too_few_calls_the_rest_is_read_in_turn() -> None:
    known = Known(BEGAN, {}, {}, {(WIDGETS, n): a_run() for n in range(10)})
    read_at = {jobs(n): NOW - 1000.0 + n for n in range(10)}
    order = []
    for tick in range(20):
        (read,) = reads(known, read_at, NOW + tick, most=1)
        read_at[read] = NOW + tick
        order.append(read.run)
        if tick == 9:
            read_at = {read: at - 100.0 for read, at in read_at.items()}
    assert order == [*range(10), *range(10)]


def test_inactive_repositories_are_read_only_for_new_runs_and_a_bounded_number_at_once() -> None:
    names = [f"acme/r{n}" for n in range(2000)]
    known = Known(BEGAN, {}, dict.fromkeys(names, NOW - ACTIVE_FOR))
    read_at = everything_read(known, NOW)
    assert {read.kind for read in read_at} == {Kind.NEWEST}
    assert reads(known, read_at, NOW + 499.0) == []
    assert len(reads(known, read_at, NOW + 500.0)) == 99


def test_runners_are_listed_again_after_a_minute_while_a_list_is_needed() -> None:
    read_at = dict.fromkeys((Read(Kind.RUNNERS, SCOPE), Read(Kind.REPOSITORIES, SCOPE)), NOW)
    read_at[Read(Kind.CREATED, SCOPE)] = NOW + RUNNERS_SOON
    for soon, due in ((True, [Read(Kind.RUNNERS, SCOPE)]), (False, [])):
        assert reads(Known(BEGAN, {SCOPE: soon}), read_at, NOW + RUNNERS_SOON) == due


def test_staleness_is_the_age_of_the_oldest_read_of_active_things() -> None:
    quiet, active = "acme/quiet", WIDGETS
    known = Known(
        BEGAN,
        {},
        {quiet: 0.0, active: NOW},
        {(active, 1): a_run(NOW - 70.0)},
        turns({Read(Kind.NEWEST, active): NOW - 30.0}),
    )
    assert staleness(known, NOW) == 70.0
    read = {jobs(1): NOW - 10.0, Read(Kind.NEWEST, active): NOW - 30.0}
    assert staleness(Known(BEGAN, {}, known.repositories, known.runs, turns(read)), NOW) == 30.0
    assert staleness(Known(BEGAN), NOW) == 0.0


def test_failed_reads_do_not_make_the_data_fresh() -> None:
    """The metric must show lost permissions and outages of GitHub."""
    newest, repositories = Read(Kind.NEWEST, WIDGETS), Read(Kind.REPOSITORIES, SCOPE)
    tried = {jobs(1): Turn(NOW), newest: Turn(NOW, NOW - 90.0), repositories: Turn(NOW, NOW - 90.0)}
    runs = {(WIDGETS, 1): a_run(NOW - 80.0)}
    assert staleness(Known(BEGAN, {SCOPE: False}, {WIDGETS: NOW}, {}, tried), NOW) == 90.0
    assert staleness(Known(BEGAN, {}, {}, runs, tried), NOW) == 80.0
    assert staleness(Known(BEGAN, {SCOPE: False}), NOW) == NOW - BEGAN, "nothing was ever listed"


def test_a_repository_does_not_become_inactive_during_an_outage() -> None:
    read_at = NOW - 3.0 * ACTIVE_FOR
    tried = {Read(Kind.NEWEST, WIDGETS): Turn(NOW, read_at)}
    known = Known(BEGAN, {}, {WIDGETS: read_at - 60.0}, {}, tried)
    assert staleness(known, NOW) == 3.0 * ACTIVE_FOR
    other = {Read(Kind.NEWEST, "acme/other"): Turn(NOW, NOW)}
    both = {WIDGETS: read_at - 60.0, "acme/other": NOW}
    assert staleness(Known(BEGAN, {}, both, {}, tried | other), NOW) == 0.0


def test_a_failing_read_is_retried_with_backoff_and_never_given_up() -> None:
    known = Known(BEGAN, {}, {}, {(WIDGETS, 1): a_run(changed=True)})
    for failures in (1, 2, 3, 4, 5, 6, 7, 8, 5_000):
        every = [15.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, SELDOM][min(failures, 7)]
        turn = {jobs(1): Turn(NOW, NOW - 60.0, failures)}
        failing = Known(BEGAN, {}, {}, known.runs, turn)
        assert next_reads(failing, NOW + every - 0.1, 9) == []
        assert next_reads(failing, NOW + every, 9) == [jobs(1)]


def test_a_failing_read_with_a_long_interval_keeps_its_interval() -> None:
    names = [f"acme/r{n}" for n in range(8000)]
    newest = Read(Kind.NEWEST, names[0])
    tried = {Read(Kind.NEWEST, name): Turn(NOW + 9999.0) for name in names}
    known = Known(BEGAN, {}, dict.fromkeys(names, 0.0), {}, tried | {newest: Turn(NOW, None, 9)})
    assert next_reads(known, NOW + 1999.0, 9) == []
    assert next_reads(known, NOW + 2000.0, 9) == [newest]


def test_a_first_read_that_fails_is_retried_soon_and_then_with_backoff() -> None:
    known = Known(BEGAN, {SCOPE: False}, {WIDGETS: NOW}, {(WIDGETS, 1): a_run()})
    everything = next_reads(known, NOW, 99)
    for failures, every in ((0, 1), (1, 1), (2, 2), (3, 4), (5_000, SELDOM / FIRST_AGAIN)):
        for read in everything:
            tried = {one: Turn(NOW + 9999.0) for one in everything} | {
                read: Turn(NOW, None, failures)
            }
            failing = Known(BEGAN, known.scopes, {WIDGETS: NOW + 999.0}, known.runs, tried)
            assert next_reads(failing, NOW + every * FIRST_AGAIN - 0.1, 9) == []
            assert next_reads(failing, NOW + every * FIRST_AGAIN, 9) == [read]


def test_a_run_that_could_not_be_read_has_no_priority_over_other_runs() -> None:
    known = Known(
        BEGAN,
        {SCOPE: False},
        {},
        {(WIDGETS, 1): a_run(), (WIDGETS, 2): a_run(NOW)},
        {jobs(1): Turn(NOW - 3000.0, None, 1), Read(Kind.REPOSITORIES, SCOPE): Turn(NOW, None, 1)},
    )
    assert next_reads(known, NOW, 1) == [jobs(2)]


def test_a_list_of_many_pages_is_read_less_often() -> None:
    runners = Read(Kind.RUNNERS, SCOPE)
    tried = {runners: Turn(NOW, NOW, calls=100), Read(Kind.REPOSITORIES, SCOPE): Turn(NOW, NOW)}
    for soon in (True, False):
        known = Known(BEGAN, {SCOPE: soon}, turns=tried)
        assert runners not in next_reads(known, NOW + 100 * EACH_CALL - 1.0, 9)
        assert runners in next_reads(known, NOW + 100 * EACH_CALL, 9)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(BEGAN, NOW), max_size=6),
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(1, 9)), st.booleans(), max_size=9
    ),
    st.integers(-3, 12),
    st.floats(0.0, 2000.0),
)
def test_next_reads_gives_at_most_the_limit_without_repeats_or_reads_in_flight(
    active: dict[str, Instant], changed: dict[tuple[str, int], bool], most: int, later: float
) -> None:
    runs = {key: a_run(changed=is_changed) for key, is_changed in changed.items()}
    known = Known(BEGAN, {SCOPE: False}, active, runs)
    read_at = everything_read(known, NOW)
    found = reads(known, read_at, NOW + later, most)
    assert len(found) == len(set(found)) <= max(0, most)
    again = Known(BEGAN, known.scopes, active, runs, turns(read_at))
    assert not set(next_reads(again, NOW + later, 999, frozenset(found))) & set(found)
    assert found == reads(known, read_at, NOW + later, most)


def test_new_repositories_of_an_organization_are_listed_between_the_lists_of_all() -> None:
    """A repository's scope has no new repositories, and only the full list shows which belong to the scope."""
    all_of_it, created = Read(Kind.REPOSITORIES, SCOPE), Read(Kind.CREATED, SCOPE)
    assert created not in next_reads(Known(BEGAN, {SCOPE: False}), NOW, 99)
    listed = Known(BEGAN, {SCOPE: False}, turns={all_of_it: Turn(NOW, NOW)})
    assert created in next_reads(listed, NOW, 99)
    failing = Known(BEGAN, {SCOPE: False}, turns={all_of_it: Turn(NOW, NOW - 300.0, failures=1)})
    assert created not in next_reads(failing, NOW, 99)
    one = f"repo:{WIDGETS}"
    listed = Known(BEGAN, {one: False}, turns={Read(Kind.REPOSITORIES, one): Turn(NOW, NOW)})
    assert [read.kind for read in next_reads(listed, NOW, 99)] == [Kind.RUNNERS]


def test_new_repositories_that_cannot_be_listed_raise_the_staleness() -> None:
    all_of_it, created = Read(Kind.REPOSITORIES, SCOPE), Read(Kind.CREATED, SCOPE)
    turns_of = {all_of_it: Turn(NOW, NOW), created: Turn(NOW, NOW - 90.0)}
    assert staleness(Known(BEGAN, {SCOPE: False}, turns=turns_of), NOW) == 0.0
    turns_of[created] = Turn(NOW, NOW - 90.0, failures=2)
    assert staleness(Known(BEGAN, {SCOPE: False}, turns=turns_of), NOW) == 90.0
