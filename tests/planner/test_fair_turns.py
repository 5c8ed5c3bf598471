"""Accounts that share machines: no account gets more than it can register while another can use them."""

import dataclasses
from collections import Counter

import pytest

from autoscaler.model.catalogue import Catalogue, RegistrationRate, Scope
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.plan import Assign, DeregisterRunner, Launch
from autoscaler.planner.matching.maximum import Supply, SupplyKind, match
from tests.ledger.builders import GPU, World
from tests.planner.fleets import catalogue, sku

READY = Supply(SupplyKind.READY, sku=GPU)
COMING = Supply(SupplyKind.COMING, sku=GPU)
SHARED = dataclasses.replace(catalogue(), scopes=(Scope("acme", None), Scope("zeta", None)))


def served(acme: int, zeta: int, reach: dict[str, int], supply: dict[Supply, int]) -> list[int]:
    """Return how many jobs of acme (the older jobs) and of zeta are matched."""
    world = World(SHARED)
    for job in range(acme + zeta):
        owner = "acme" if job < acme else "zeta"
        world.observe(job, JobState.QUEUED, repository=f"{owner}/widgets")
        world.now += 1.0
    fleet = world.fleet()
    found = match(fleet, supply, {}, reach)
    counts = {demand.account: found.matched[demand] for demand in fleet.queues}
    return [counts["acme"], counts["zeta"]]


def test_older_jobs_of_an_account_with_little_budget_leave_machines_to_the_other() -> None:
    assert served(5, 3, {"acme": 2, "zeta": 3}, {READY: 4}) == [2, 2]
    assert served(5, 3, {"acme": 2, "zeta": 3}, {READY: 1, COMING: 3}) == [2, 2]


def test_machines_that_one_account_cannot_use_go_to_the_account_short_of_budget() -> None:
    assert served(5, 1, {"acme": 2, "zeta": 1}, {READY: 4}) == [3, 1]


def test_an_account_without_registration_budget_gets_only_spare_machines() -> None:
    assert served(2, 2, {"acme": 0, "zeta": 2}, {READY: 2}) == [0, 2]
    assert served(2, 2, {"acme": 0, "zeta": 2}, {READY: 3}) == [1, 2]


def test_registered_runners_use_no_registration_budget() -> None:
    world = World(SHARED)
    world.queue(1)
    (demand,) = world.fleet().queues
    runners = Supply(SupplyKind.RUNNER, runner_class=demand)
    assert served(5, 2, {"acme": 1, "zeta": 2}, {runners: 3, READY: 3}) == [4, 2]


A, B = SkuName("a"), SkuName("b")
READY_A, READY_B = (Supply(SupplyKind.READY, sku=name) for name in (A, B))


def served_in_turn(
    jobs: list[tuple[str, str]], reach: dict[str, int], supply: dict[Supply, int]
) -> dict[str, int]:
    """Return how many jobs of each account are matched. A job is a pair of account and label."""
    known = catalogue(sku("a", labels=("any",)), sku("b", labels=("any",)))
    owners = sorted({owner for owner, _ in jobs})
    world = World(dataclasses.replace(known, scopes=tuple(Scope(o, None) for o in owners)))
    for number, (owner, label) in enumerate(jobs):
        world.observe(number, JobState.QUEUED, (label,), repository=f"{owner}/widgets")
        world.now += 1.0
    found = match(world.fleet(), supply, {}, reach)
    counts = Counter[str]()
    for demand, count in found.matched.items():
        counts[demand.account] += count
    return dict(counts)


def test_no_account_yields_a_machine_to_an_account_without_registration_budget() -> None:
    jobs = [("yak", "any"), ("acme", "a"), ("acme", "a"), ("acme", "a"), ("zeta", "b")]
    found = served_in_turn(jobs, {"acme": 2, "yak": 1, "zeta": 1}, {READY_A: 3, READY_B: 1})
    assert found == {"acme": 2, "yak": 1, "zeta": 1}


def test_jobs_of_a_short_account_get_machines_before_another_accounts_last_registration() -> None:
    jobs = [("yak", "any"), ("acme", "a"), ("acme", "a"), ("acme", "a"), ("zeta", "b")]
    found = served_in_turn(jobs, {"acme": 2, "yak": 1, "zeta": 1}, {READY_A: 2, READY_B: 1})
    assert found["acme"] == 2
    assert "zeta" not in found or found["zeta"] == 0


def test_a_class_with_its_own_machines_is_served_within_its_budget() -> None:
    jobs = [("acme", "a"), ("acme", "a"), ("zeta", "b")]
    found = served_in_turn(jobs, {"acme": 1, "zeta": 1}, {READY_A: 1, READY_B: 5})
    assert found == {"acme": 1, "zeta": 1}


def test_the_shortage_of_an_account_counts_jobs_of_all_its_classes() -> None:
    jobs = [("acme", "a"), ("acme", "a"), ("acme", "any"), ("zeta", "a")]
    found = served_in_turn(jobs, {"acme": 2, "zeta": 1}, {READY_A: 3})
    assert found == {"acme": 2, "zeta": 1}


def test_jobs_with_their_own_machines_do_not_use_the_shared_budget_first() -> None:
    jobs = [*[("acme", "b")] * 2, *[("zeta", "b")] * 2, *[("acme", "a")] * 5]
    found = served_in_turn(jobs, {"acme": 2, "zeta": 2}, {READY_A: 5, READY_B: 2})
    assert found == {"acme": 2 + 5}


@pytest.mark.parametrize("reach", [None, {}])
def test_without_a_registration_budget_no_account_is_limited(reach: dict[str, int] | None) -> None:
    world = World(SHARED)
    world.queue(1, 2)
    world.observe(3, JobState.QUEUED, repository="zeta/widgets")
    assert match(world.fleet(), {READY: 2, COMING: 1}, {}, reach).matched.total() == 3


def test_only_jobs_matched_to_machines_count_for_the_budget_of_their_account() -> None:
    world = World(SHARED)
    world.queue(1, 2, 3)
    (demand,) = world.fleet().queues
    runners = Supply(SupplyKind.RUNNER, runner_class=demand)
    found = match(world.fleet(), {runners: 1, READY: 1, COMING: 3}, {GPU: 2})
    assert found.machines == {"acme": 2}


def two_turns_each(*skus: str) -> Catalogue:
    """Return a catalogue in which each account can register two runners."""
    known = catalogue(*(sku(name) for name in skus), registration=RegistrationRate(2, 0.001))
    scopes = tuple(Scope(owner, None) for owner in ("acme", "yak", "zeta"))
    return dataclasses.replace(known, scopes=scopes)


def queue_both(world: World) -> None:
    """Queue five jobs of acme, then three of zeta."""
    world.queue(*range(1, 6))
    world.now += 1.0
    for job in range(6, 9):
        world.observe(job, JobState.QUEUED, repository="zeta/widgets")


def assigned(world: World) -> list[str]:
    return [intent.demand.account for intent in world.intents(Assign)]


def test_ready_machines_are_assigned_to_both_accounts_alternately() -> None:
    world = World(two_turns_each("gpu"))
    world.make_ready(4)
    queue_both(world)
    assert assigned(world) == ["acme", "acme", "zeta", "zeta"]


def test_two_accounts_share_ready_machines_although_a_registration_is_left_over() -> None:
    world = World(two_turns_each("gpu", "other"))
    world.make_ready(4)
    world.name(
        world.make_ready(1, "o", "other")[0],
        DemandClass("org:acme", "Default", ("other",), (SkuName("other"),)),
    )
    world.state.registration_levels.clear()
    queue_both(world)
    assert (len(world.intents(DeregisterRunner)), world.intents(Launch)) == (1, [])
    assert assigned(world) == ["acme", "acme", "zeta", "zeta"]


def test_two_accounts_share_ready_machines_while_another_sku_launches() -> None:
    world = World(two_turns_each("gpu", "other"))
    world.make_ready(4)
    queue_both(world)
    world.observe(9, JobState.QUEUED, ("other",), repository="yak/widgets")
    assert [launch.sku for launch in world.intents(Launch)] == ["other"]
    assert assigned(world) == ["acme", "acme", "zeta", "zeta"]


@pytest.mark.parametrize("registrable", [0, 1])
def test_machines_beyond_the_registration_budget_are_shared_fairly_too(registrable: int) -> None:
    fair = dataclasses.replace(sku(max_machines=4), fair_share=0.5)
    world = World(catalogue(fair))
    for job in range(8):
        repository = "acme/many" if job < 5 else "acme/few"
        world.observe(job, JobState.QUEUED, repository=repository)
        world.now += 1.0
    found = match(world.fleet(), {READY: 4}, {}, {"acme": registrable})
    assert found.taken == {(GPU, "acme/many"): 2, (GPU, "acme/few"): 2}
    assert found.matched.total() == 4
