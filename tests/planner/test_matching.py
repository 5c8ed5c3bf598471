"""Which supply serves which demand class: a deterministic maximum matching, oldest jobs first."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.planner.matching.classes import Covering
from autoscaler.planner.matching.maximum import (
    Matching,
    Supply,
    SupplyKind,
    match,
    ready_minimum_class,
)
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku

A, B = SkuName("a"), SkuName("b")
BOTH = catalogue(sku("a", labels=("ab",)), sku("b", labels=("ab",)))


def klass(*labels: str, skus: tuple[SkuName, ...] = (A,)) -> DemandClass:
    return DemandClass("org:acme", "Default", labels, skus)


ONLY_A, ONLY_B, EITHER = klass("a"), klass("b", skus=(B,)), klass("ab", skus=(A, B))
READY_A, READY_B = (Supply(SupplyKind.READY, sku=s) for s in (A, B))
COMING_A, UNSENT_A = (Supply(k, sku=A) for k in (SupplyKind.COMING, SupplyKind.UNSENT))


def runner(demand: DemandClass) -> Supply:
    return Supply(SupplyKind.RUNNER, runner_class=demand)


def matched(
    jobs: list[str], supply: dict[Supply, int], minimum: dict[SkuName, int] | None = None
) -> Matching:
    """Match jobs with these labels. The first job is the oldest, each next one a second younger."""
    world = World(BOTH)
    for number, label in enumerate(jobs):
        world.observe(number, JobState.QUEUED, (label,), queued_at=float(number))
    return match(world.fleet(), supply, minimum or {})


def flow(found: Matching) -> dict[tuple[DemandClass, Supply], int]:
    return {(demand, pool): count for demand, pool, count in found.flows}


def covers(of_runner: DemandClass, demand: DemandClass) -> bool:
    return list(Covering([of_runner]).of(demand)) == [0]


@pytest.mark.case(
    "all labels must match, and the group too",
    topic="GitHub's events",
    source="GitHub: labels",
)
@pytest.mark.parametrize(
    ("labels", "covered"),
    [(("gpu",), True), (("gpu", "x"), True), ((), True), (("y",), False), (("gpu", "y"), False)],
)
def test_a_runner_covers_jobs_that_ask_for_no_more_than_its_labels(
    labels: tuple[str, ...], covered: bool
) -> None:
    assert covers(klass("gpu", "x"), klass(*labels)) is covered


@pytest.mark.case(
    "all labels must match, and the group too",
    topic="GitHub's events",
    source="GitHub: labels",
)
def test_a_runner_covers_its_own_scope_and_group_only() -> None:
    mine = klass("gpu")
    assert not covers(dataclasses.replace(mine, scope="org:other"), mine)
    assert not covers(dataclasses.replace(mine, runner_group="other"), mine)


def test_a_runner_for_the_empty_list_offers_its_skus_name() -> None:
    assert covers(klass(skus=(A,)), klass("a"))
    assert covers(klass(skus=(A,)), klass())
    assert not covers(klass(skus=(A,)), klass("ab"))


def test_supply_is_used_in_order_runners_ready_booting_then_unsent() -> None:
    runners = [runner(ONLY_A), runner(EITHER)]
    everything = dict.fromkeys((UNSENT_A, COMING_A, READY_B, READY_A, *runners), 1)
    order = (runner(EITHER), READY_A, READY_B, COMING_A, UNSENT_A)
    for count in range(1, len(order) + 2):
        used = flow(matched(["ab"] * count, everything))
        assert used == {(EITHER, pool): 1 for pool in order[:count]}
    assert flow(matched(["b"] * 2, everything)) == {(ONLY_B, READY_B): 1}


def test_a_class_has_the_runners_that_cover_it_in_their_order() -> None:
    runners = [klass("gpu"), klass("gpu", "x"), klass("gpu", "x", "y"), klass("y")]
    assert list(Covering(runners).of(klass("gpu"))) == [0, 1, 2]
    assert list(Covering(runners).of(klass("x"))) == [1, 2]
    assert list(Covering(runners).of(klass("gpu", "z"))) == []
    assert list(Covering([]).of(klass("gpu"))) == []


def test_a_class_uses_its_supply_in_order() -> None:
    found = matched(["a"] * 5, {runner(ONLY_A): 1, READY_A: 2, COMING_A: 1, UNSENT_A: 1})
    assert flow(found) == {
        (ONLY_A, runner(ONLY_A)): 1,
        (ONLY_A, READY_A): 2,
        (ONLY_A, COMING_A): 1,
        (ONLY_A, UNSENT_A): 1,
    }
    assert found.matched[ONLY_A] == 5
    assert found.served(ONLY_A, SupplyKind.READY) == 2
    assert found.served(ONLY_B, SupplyKind.READY) == 0


def test_matching_exceeds_neither_supply_nor_demand() -> None:
    found = matched(["a"] * 3, {READY_A: 2})
    assert (found.matched[ONLY_A], found.used[READY_A]) == (2, 2)
    found = matched(["a"], {READY_A: 2})
    assert (found.matched[ONLY_A], found.used[READY_A]) == (1, 1)
    assert flow(matched(["a"], {READY_A: 0, runner(ONLY_A): -1})) == {}


def test_a_job_yields_its_machine_to_a_job_that_has_no_other() -> None:
    found = matched(["ab", "a"], {READY_A: 1, READY_B: 1})
    assert flow(found) == {(EITHER, READY_B): 1, (ONLY_A, READY_A): 1}
    assert found.used == {READY_A: 1, READY_B: 1}


def test_yielding_a_machine_may_take_several_steps() -> None:
    wide, thin = klass("a", "x"), klass("a")
    known = catalogue(sku("a", labels=("x", "ab")), sku("b", labels=("ab",)))
    world = World(known)
    for number, labels in enumerate((("a", "x"), ("ab",), ("a",))):
        world.observe(number, JobState.QUEUED, labels, queued_at=float(number))
    supply = {runner(wide): 1, READY_A: 1, READY_B: 1}
    found = match(world.fleet(), supply, {})
    assert sum(found.matched.values()) == 3
    assert flow(found)[EITHER, READY_B] == 1
    assert {flow(found).get((thin, pool), 0) for pool in (READY_A, runner(wide))} == {0, 1}


def test_runners_are_used_in_the_same_order_in_every_order_of_the_supply() -> None:
    wide, thin = runner(klass("a", "x")), runner(klass("a"))
    world = World(catalogue(sku("a", labels=("x",))))
    world.observe(1, JobState.QUEUED, ("a",))
    for supply in ({wide: 1, thin: 1}, {thin: 1, wide: 1}):
        assert list(match(world.fleet(), supply, {}).used) == [thin]


def test_a_ready_minimum_that_cannot_be_kept_does_not_hinder_another() -> None:
    third = SkuName("c")
    known = catalogue(sku("a", labels=("ac",)), sku("b"), sku("c", labels=("ac",)))
    world = World(known)
    world.observe(1, JobState.QUEUED, ("ac",))
    coming_c = Supply(SupplyKind.COMING, sku=third)
    found = match(world.fleet(), {COMING_A: 1, coming_c: 1}, {B: 1, A: 1})
    assert found.used == {COMING_A: 1, coming_c: 1}
    assert found.matched[ready_minimum_class(A)] == 1


def test_jobs_that_move_between_unsent_launches_are_reported() -> None:
    """Then another launch could serve other jobs, so the planner has to match again."""
    unsent_b = Supply(SupplyKind.UNSENT, sku=B)
    assert matched(["ab", "a"], {UNSENT_A: 1, unsent_b: 1}).moved
    assert not matched(["a", "ab"], {UNSENT_A: 1, unsent_b: 1}).moved
    assert not matched(["ab", "a"], {READY_A: 1, READY_B: 1, UNSENT_A: 1}).moved


def test_the_oldest_job_goes_first_if_supply_is_scarce() -> None:
    assert flow(matched(["ab", "a", "ab"], {READY_A: 1})) == {(EITHER, READY_A): 1}
    assert flow(matched(["a", "ab", "ab"], {READY_A: 1})) == {(ONLY_A, READY_A): 1}
    found = matched(["ab", "a", "ab", "a"], {READY_A: 3})
    assert (found.matched[EITHER], found.matched[ONLY_A]) == (2, 1)


def test_the_age_of_a_class_is_that_of_its_next_unmatched_job() -> None:
    found = matched(["a", "a", "ab", "a"], {READY_A: 2})
    assert (found.matched[ONLY_A], found.matched[EITHER]) == (2, 0)


def test_a_share_of_another_sku_does_not_change_which_machines_serve_a_class() -> None:
    """The unsent machine is not needed: the older job moves to the booting one of the other SKU."""
    shared = dataclasses.replace(sku("c", max_machines=4), fair_share=0.5)
    world = World(catalogue(*BOTH.skus.values(), shared))
    for number, label in enumerate(("ab", "a", "c")):
        world.observe(number, JobState.QUEUED, (label,), queued_at=float(number))
    coming_b = Supply(SupplyKind.COMING, sku=B)
    found = match(world.fleet(), {COMING_A: 1, coming_b: 1, UNSENT_A: 1}, {})
    assert world.fleet().queues_by_repository
    assert flow(found) == {(EITHER, coming_b): 1, (ONLY_A, COMING_A): 1}


def test_the_ready_minimum_comes_after_every_job() -> None:
    found = matched(["a"], {READY_A: 1, COMING_A: 1}, {A: 2})
    assert flow(found) == {(ONLY_A, READY_A): 1, (ready_minimum_class(A), COMING_A): 1}
    assert found.matched[ready_minimum_class(A)] == 1


def test_a_job_moves_to_another_skus_booting_machine_to_fill_a_ready_minimum() -> None:
    coming_b = Supply(SupplyKind.COMING, sku=B)
    found = matched(["ab"], {COMING_A: 1, coming_b: 1}, {A: 1})
    assert flow(found) == {(EITHER, coming_b): 1, (ready_minimum_class(A), COMING_A): 1}


def test_no_more_jobs_move_than_the_ready_minimum_needs() -> None:
    coming_b = Supply(SupplyKind.COMING, sku=B)
    found = matched(["ab", "ab"], {COMING_A: 2, coming_b: 2}, {A: 1})
    assert flow(found) == {
        (EITHER, COMING_A): 1,
        (EITHER, coming_b): 1,
        (ready_minimum_class(A), COMING_A): 1,
    }


def test_jobs_move_to_other_machines_to_fill_the_ready_minimum() -> None:
    coming_b = Supply(SupplyKind.COMING, sku=B)
    found = matched(["ab", "ab"], {COMING_A: 2, coming_b: 2}, {A: 2})
    assert flow(found) == {(EITHER, coming_b): 2, (ready_minimum_class(A), COMING_A): 2}
    assert found.matched[ready_minimum_class(A)] == 2


def test_no_job_yields_its_ready_machine_to_a_ready_minimum() -> None:
    coming_b = Supply(SupplyKind.COMING, sku=B)
    found = matched(["ab"], {READY_A: 1, coming_b: 1}, {A: 1})
    assert flow(found) == {(EITHER, READY_A): 1}
    assert found.matched[ready_minimum_class(A)] == 0


def test_a_job_with_a_booting_machine_moves_while_a_job_with_a_ready_machine_stays() -> None:
    coming_b = Supply(SupplyKind.COMING, sku=B)
    found = matched(["a", "ab"], {READY_A: 1, COMING_A: 1, coming_b: 1}, {A: 1})
    assert flow(found) == {
        (ONLY_A, READY_A): 1,
        (EITHER, coming_b): 1,
        (ready_minimum_class(A), COMING_A): 1,
    }


def test_two_ready_minimums_do_not_share_a_machine() -> None:
    found = matched([], {READY_A: 3, READY_B: 1}, {A: 2, B: 2})
    assert flow(found) == {
        (ready_minimum_class(A), READY_A): 2,
        (ready_minimum_class(B), READY_B): 1,
    }
    assert (found.matched[ready_minimum_class(A)], found.matched[ready_minimum_class(B)]) == (2, 1)


def test_launched_machines_count_as_unsent_supply_of_their_classes() -> None:
    """Ready minimums register no runner, so the account's registrations count jobs only."""
    found = matched(["a"], {READY_A: 1}, {A: 2})
    assert (found.matched, found.machines) == ({ONLY_A: 1}, {"acme": 1})
    minimum = ready_minimum_class(A)
    found.add_launched({ONLY_A: 2, minimum: 1})
    found.add_launched({ONLY_A: 1, minimum: 1})
    assert found.matched == {ONLY_A: 4, minimum: 2}
    assert found.used == {READY_A: 1, UNSENT_A: 5}
    assert found.machines == {"acme": 4}
    assert found.flows[1:] == [
        (ONLY_A, UNSENT_A, 2),
        (minimum, UNSENT_A, 1),
        (ONLY_A, UNSENT_A, 1),
        (minimum, UNSENT_A, 1),
    ]
    kinds = (SupplyKind.RUNNER, SupplyKind.READY, SupplyKind.COMING, SupplyKind.UNSENT)
    assert [found.served(ONLY_A, kind) for kind in kinds] == [0, 1, 0, 3]
    assert [found.served(minimum, kind) for kind in kinds] == [0, 0, 0, 2]


POOLS = (READY_A, READY_B, COMING_A, runner(ONLY_A), runner(EITHER))
FITS = {
    "a": {READY_A, COMING_A, runner(ONLY_A)},
    "b": {READY_B},
    "ab": {READY_A, READY_B, COMING_A, runner(EITHER)},
}


def best(jobs: list[str], supply: dict[Supply, int]) -> set[int]:
    """Return the oldest jobs that can be served together, by trying every combination (for few jobs)."""
    chosen: set[int] = set()
    for number in range(len(jobs)):
        if _fits([jobs[n] for n in (*chosen, number)], dict(supply)):
            chosen.add(number)
    return chosen


def _fits(jobs: list[str], supply: dict[Supply, int]) -> bool:
    if not jobs:
        return True
    for pool in FITS[jobs[0]]:
        if supply.get(pool, 0) > 0 and _fits(jobs[1:], supply | {pool: supply[pool] - 1}):
            return True
    return False


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "ab"]), max_size=6),
    st.fixed_dictionaries({pool: st.integers(0, 2) for pool in POOLS}),
)
def test_the_matching_is_maximal_and_serves_the_oldest_jobs(
    jobs: list[str], supply: dict[Supply, int]
) -> None:
    found = matched(jobs, supply)
    served = [jobs[n] for n in best(jobs, supply)]
    for demand, label in ((ONLY_A, "a"), (ONLY_B, "b"), (EITHER, "ab")):
        assert found.matched[demand] == served.count(label)
    for pool in POOLS:
        used = sum(n for _, p, n in found.flows if p == pool)
        assert used == found.used[pool] <= supply[pool]
    assert flow(found) == flow(matched(jobs, dict(reversed(supply.items()))))
