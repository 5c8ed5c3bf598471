"""What a job waited for, and which launches failed meanwhile, from rows of history."""

from autoscaler.model.changes import FailedLaunch, HistoryRow, failed_launch_of, row_of
from autoscaler.model.identifiers import LaunchRequestId, SkuName
from autoscaler.views.jobs.past import past_of
from tests.ledger.builders import START, World


def blocked(at: float, code: str, message: str = "why") -> HistoryRow:
    return HistoryRow(START + at, "demand", "class", "blocked" if code else "served", message, code)


def failed(at: float, message: str = "Code: words") -> FailedLaunch:
    request = LaunchRequestId(f"c{at:g}")
    return FailedLaunch(
        START + at, SkuName("gpu"), request, "east/g5.xlarge/a/spot", "capacity", message
    )


def spells(world: World, own: list[HistoryRow], of_class: list[HistoryRow], now: float) -> object:
    found = past_of(world.job(1), own, of_class, (), START + now)
    return [(one.code, one.begin - START, one.seconds, one.end is None) for one in found.waited_for]


def test_a_waiting_job_has_the_reasons_of_its_class_since_it_was_queued() -> None:
    world = World()
    world.queue(1)
    of_class = [
        blocked(-50, "quota"),
        blocked(20, "capacity"),
        blocked(70, ""),
        blocked(80, "quota"),
    ]
    assert spells(world, [], of_class, 100) == [
        ("quota", 0, 20, False),
        ("capacity", 20, 50, False),
        ("quota", 80, 20, True),
    ]


def test_the_reasons_of_the_class_end_when_the_machine_of_the_job_was_requested() -> None:
    world = World()
    world.queue(1)
    own = [
        HistoryRow(START + at, kind, "x", event)
        for at, kind, event in (
            (40, "machine", "requested"),
            (55, "machine", "ready"),
            (57, "runner", "listening"),
        )
    ]
    world.after(60)
    world.starts(1, "r")
    assert spells(world, own, [blocked(-50, "capacity")], 500) == [
        ("capacity", 0, 40, False),
        ("machine_booting", 40, 15, False),
        ("machine_ready", 55, 2, False),
        ("runner_idle", 57, 3, False),
    ]


def test_what_github_had_to_decide_comes_from_the_history_of_the_job() -> None:
    world = World()
    world.queue(1)
    own = [
        HistoryRow(START + at, "job", "1", event)
        for at, event in ((0, "queued"), (10, "on_hold"), (20, "passed_over"), (30, "released"))
    ]
    assert spells(world, own, [], 100) == [("not_assigned", 10, 20, False)]


def test_failed_launches_of_the_wait_are_counted_if_they_are_alike() -> None:
    world = World()
    world.queue(1)
    rows = [row_of(failed(at)) for at in (-1, 5, 9)] + [row_of(failed(7, "Other: words"))]
    found = past_of(world.job(1), (), (), rows, START + 100).failed_launches
    assert [(one.message, one.count, one.launch_request) for one in found] == [
        ("Code: words", 2, "c9"),
        ("Other: words", 1, "c7"),
    ]
    assert (found[0].first_at - START, found[0].last_at - START) == (5, 9)


def test_a_failed_launch_survives_its_row() -> None:
    for message in ("Code: words", "two\nlines: of it", ""):
        assert failed_launch_of(row_of(failed(5, message))) == failed(5, message)
