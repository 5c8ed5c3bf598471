"""Accounts that share machines: none takes more than it can register while another can use them."""

import dataclasses

from autoscaler.model.catalogue import Scope
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs import JobState
from autoscaler.planner.matching import Supply, SupplyKind, match
from tests.ledger.builders import GPU, World
from tests.planner.fleets import catalogue, sku

PARKED = Supply(SupplyKind.PARKED, sku=GPU)
COMING = Supply(SupplyKind.COMING, sku=GPU)
SHARED = dataclasses.replace(catalogue(), scopes=(Scope("acme", None), Scope("zeta", None)))


def served(acme: int, zeta: int, reach: dict[str, int], supply: dict[Supply, int]) -> list[int]:
    """How many jobs of acme, the older ones, and of zeta are matched."""
    world = World(SHARED)
    for job in range(acme + zeta):
        owner = "acme" if job < acme else "zeta"
        world.observe(job, JobState.QUEUED, repository=f"{owner}/widgets")
        world.now += 1.0
    fleet = world.fleet()
    found = match(fleet, supply, {}, reach)
    counts = {demand.account: found.matched[demand] for demand in fleet.queues}
    return [counts["acme"], counts["zeta"]]


def test_the_older_jobs_of_an_account_short_of_turns_leave_machines_to_the_other() -> None:
    assert served(5, 3, {"acme": 2, "zeta": 3}, {PARKED: 4}) == [2, 2]
    assert served(5, 3, {"acme": 2, "zeta": 3}, {PARKED: 1, COMING: 3}) == [2, 2]


def test_what_the_other_cannot_use_goes_to_the_account_short_of_turns() -> None:
    assert served(5, 1, {"acme": 2, "zeta": 1}, {PARKED: 4}) == [3, 1]


def test_an_account_without_a_turn_waits_for_the_others() -> None:
    assert served(2, 2, {"acme": 0, "zeta": 2}, {PARKED: 2}) == [0, 2]
    assert served(2, 2, {"acme": 0, "zeta": 2}, {PARKED: 3}) == [1, 2]


def test_runners_that_are_registered_need_no_turn() -> None:
    world = World(SHARED)
    world.queue(1)
    (demand,) = world.fleet().queues
    runners = Supply(SupplyKind.RUNNER, runner_class=demand)
    assert served(5, 2, {"acme": 1, "zeta": 2}, {runners: 3, PARKED: 3}) == [4, 2]


A, B = SkuName("a"), SkuName("b")
PARKED_A, PARKED_B = (Supply(SupplyKind.PARKED, sku=name) for name in (A, B))


def served_in_turn(
    jobs: list[tuple[str, str]], reach: dict[str, int], supply: dict[Supply, int]
) -> dict[str, int]:
    """How many jobs of each account are matched. A job is its account and its label."""
    known = catalogue(sku("a", labels=("any",)), sku("b", labels=("any",)))
    owners = sorted({owner for owner, _ in jobs})
    world = World(dataclasses.replace(known, scopes=tuple(Scope(o, None) for o in owners)))
    for number, (owner, label) in enumerate(jobs):
        world.observe(number, JobState.QUEUED, (label,), repository=f"{owner}/widgets")
        world.now += 1.0
    found = match(world.fleet(), supply, {}, reach)
    return {demand.account: count for demand, count in sorted(found.matched.items())}


def test_nobody_makes_way_for_an_account_that_has_no_turn_left() -> None:
    jobs = [("yak", "any"), ("acme", "a"), ("acme", "a"), ("acme", "a"), ("zeta", "b")]
    found = served_in_turn(jobs, {"acme": 2, "yak": 1, "zeta": 1}, {PARKED_A: 3, PARKED_B: 1})
    assert found == {"acme": 2, "yak": 1, "zeta": 1}


def test_another_makes_way_for_the_last_turn_of_an_account() -> None:
    jobs = [("yak", "any"), ("acme", "a"), ("acme", "a"), ("acme", "a"), ("zeta", "b")]
    found = served_in_turn(jobs, {"acme": 2, "yak": 1, "zeta": 1}, {PARKED_A: 2, PARKED_B: 1})
    assert found["acme"] == 2
    assert "zeta" not in found or found["zeta"] == 0


def test_a_class_by_itself_is_served_once_however_short_another_is() -> None:
    jobs = [("acme", "a"), ("acme", "a"), ("zeta", "b")]
    found = served_in_turn(jobs, {"acme": 1, "zeta": 1}, {PARKED_A: 1, PARKED_B: 5})
    assert found == {"acme": 1, "zeta": 1}
