"""The flow of jobs between numbered classes and pools, compared with a simple search on small random flows."""

import doctest
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from autoscaler.planner.matching import flow as explained
from autoscaler.planner.matching.flow import Flow

CHAIN = 6


@dataclass(frozen=True)
class Problem:
    """Classes with their pools, the supply of each pool, and the classes of the jobs, oldest first.

    The first `runners` pools are registered runners, each of one account. `accounts` has the account of
    each class.
    """

    pools: list[list[int]]
    supply: list[int]
    runners: int
    accounts: list[int]
    ages: list[int]

    def flow(self) -> Flow:
        pools = [list(one) for one in self.pools]
        return Flow(pools, list(self.supply), self.runners, list(self.accounts))

    @property
    def waits(self) -> Counter[int]:
        return Counter(self.ages)

    @property
    def classes(self) -> range:
        return range(len(self.pools))


def problems(count: int) -> Iterator[Problem]:
    """Yield random problems: few pools a class, so that jobs move along several pools."""
    for seed in range(count):
        chance = random.Random(seed)
        classes, pools = chance.randint(2, 7), chance.randint(2, 7)
        accounts = [chance.randint(0, 2) for _ in range(classes)]
        of_runner = [chance.randint(0, 2) for _ in range(chance.randint(0, pools))]
        yield Problem(
            [
                [
                    pool
                    for pool in sorted(
                        chance.sample(range(pools), chance.randint(1, min(pools, 3)))
                    )
                    if pool >= len(of_runner) or of_runner[pool] == account
                ]
                for account in accounts
            ],
            [chance.randint(0, 2) for _ in range(pools)],
            len(of_runner),
            accounts,
            [chance.randrange(classes) for _ in range(chance.randint(1, 18))],
        )


def best(problem: Problem) -> list[int]:
    """Return how many jobs of each class are served if the oldest go first, by searching job by job."""
    place_of: dict[tuple[int, int], int] = {}
    jobs, matched = list(problem.ages), [0] * len(problem.pools)

    def serve(job: int, seen: set[tuple[int, int]]) -> bool:
        for pool in problem.pools[jobs[job]]:
            for place in ((pool, n) for n in range(problem.supply[pool])):
                if place in seen:
                    continue
                seen.add(place)
                if place not in place_of or serve(place_of[place], seen):
                    place_of[place] = job
                    return True
        return False

    for job, number in enumerate(jobs):
        matched[number] += serve(job, set())
    return matched


def check_sums(problem: Problem, flow: Flow) -> None:
    """Check that the sums of a flow agree, and that each pool serves only classes that may use it."""
    machines = [0] * len(flow.machines)
    matched = [0] * len(problem.pools)
    for pool, users in enumerate(flow.users):
        assert sum(users.values()) <= problem.supply[pool]
        for number, count in users.items():
            assert count > 0
            assert pool in problem.pools[number]
            matched[number] += count
            machines[problem.accounts[number]] += count if pool >= problem.runners else 0
    assert (flow.matched, flow.machines) == (matched, machines)


def in_pieces(ages: Sequence[int], size: int) -> list[Sequence[int]]:
    return [ages[at : at + size] for at in range(0, len(ages), size)]


def test_the_worked_example_is_true() -> None:
    assert doctest.testmod(explained) == doctest.TestResults(failed=0, attempted=6)


@pytest.mark.parametrize("size", [1, 3, 99])
def test_the_oldest_jobs_are_served_in_whatever_pieces_they_come(size: int) -> None:
    for problem in problems(150):
        flow = problem.flow()
        flow.serve(in_pieces(problem.ages, size), problem.classes)
        check_sums(problem, flow)
        assert flow.matched == best(problem)


def test_jobs_served_one_by_one_are_the_same() -> None:
    for problem in problems(150):
        flow = problem.flow()
        for number in problem.ages:
            flow.augment(number)
        check_sums(problem, flow)
        assert flow.matched == best(problem)


def test_as_many_jobs_are_served_class_by_class() -> None:
    for problem in problems(150):
        flow = problem.flow()
        for number, wanted in problem.waits.items():
            while flow.matched[number] < wanted:
                if not flow.augment(number, wanted - flow.matched[number]):
                    break
        check_sums(problem, flow)
        assert sum(flow.matched) == sum(best(problem))


def test_supply_that_comes_later_serves_the_jobs_that_were_left() -> None:
    """The oldest jobs of the first supply keep theirs; together, as many are served as at once."""
    for problem in problems(150):
        flow, chance = problem.flow(), random.Random(str(problem))
        late = {pool: chance.randint(0, n) for pool, n in enumerate(problem.supply)}
        flow.add_supply({pool: -count for pool, count in late.items()})
        flow.serve([problem.ages], problem.classes)
        first = list(flow.matched)
        flow.add_supply(late)
        flow.serve([problem.ages], problem.classes)
        check_sums(problem, flow)
        assert all(flow.matched[number] >= count for number, count in enumerate(first))
        assert sum(flow.matched) == sum(best(problem))


@pytest.mark.parametrize("one_by_one", [True, False])
def test_no_account_uses_more_machines_than_it_can_register(one_by_one: bool) -> None:
    """Without the limit, the other jobs are served from what is left."""
    for problem in problems(150):
        flow, chance = problem.flow(), random.Random(str(problem))
        most = [chance.randint(0, 3) for _ in flow.machines]
        limits: tuple[list[int] | None, ...] = (most, None)
        for limit in limits:
            flow.limit(limit)
            if one_by_one:
                skip = list(flow.matched)
                for number in problem.ages:
                    if skip[number]:
                        skip[number] -= 1
                    else:
                        flow.augment(number)
            else:
                flow.serve([problem.ages], problem.classes)
            check_sums(problem, flow)
            if limit is not None:
                assert all(n <= m for n, m in zip(flow.machines, limit, strict=True))
        assert sum(flow.matched) == sum(best(problem))


def test_a_limited_search_finds_the_same_as_one_that_remembers_no_failed_search() -> None:
    """Supply that comes later makes the flow forget which classes had no path, also if it is none."""
    for problem in problems(600):
        chance = random.Random(str(problem))
        flow, forgetful = problem.flow(), problem.flow()
        most = [chance.randint(0, 3) for _ in flow.machines]
        flow.limit(most)
        forgetful.limit(most)
        for number in problem.ages * 2:
            forgetful.add_supply({})
            assert flow.augment(number) == forgetful.augment(number)
        assert flow.matched == forgetful.matched


def test_a_class_that_failed_below_another_is_searched_again() -> None:
    """Class 1 shares its pool with class 0 alone, and has a path only after class 0 uses another pool."""
    flow = Flow([[0, 1], [0], [1, 2]], [2, 2, 2], 0, [0, 0, 0])
    flow.limit([9])
    assert [flow.augment(number) for number in (0, 1, 2, 2, 0, 1)] == [1] * 6
    assert flow.matched == [2, 2, 2]


def test_a_class_with_several_pools_that_failed_below_another_is_searched_again() -> None:
    """As above. Class 1 also has a pool of its own, which it tries after the one that it shares."""
    flow = Flow([[0, 1], [0, 3], [1, 2]], [2, 2, 2, 1], 0, [0, 0, 0])
    flow.limit([9])
    assert [flow.augment(number) for number in (0, 1, 1, 2, 2, 0, 1)] == [1] * 7
    assert flow.matched == [2, 3, 2]


def test_an_account_without_registrations_still_moves_jobs_between_its_runners() -> None:
    """Class 3 moves class 2 to another machine. Class 0 then moves class 1 to another runner."""
    flow = Flow([[0], [0, 1], [2, 3], [2]], [1] * 4, 2, [0, 0, 1, 1])
    flow.limit([0, 9])
    assert [flow.augment(number) for number in (1, 2, 3, 0)] == [1] * 4
    assert flow.users == [{0: 1}, {1: 1}, {3: 1}, {2: 1}]


def test_a_lower_limit_lets_no_account_use_more_machines() -> None:
    """Neither a free machine nor one of another class, until the limit is as high as what is used."""
    flow = Flow([[0, 1], [0]], [2, 2], 0, [0, 1])
    flow.limit([2, 2])
    assert flow.augment(0) + flow.augment(1) + flow.augment(0) == 3
    flow.limit([1, 1])
    assert [flow.augment(0), flow.augment(1)] == [0, 0]
    flow.limit([2, 2])
    assert [flow.augment(0), flow.augment(1)] == [0, 1]
    assert flow.machines == [2, 2]


def test_a_search_that_a_limit_cut_is_repeated_once_the_account_has_a_registration_again() -> None:
    """Class 3 needs a machine for class 2. Class 4, of another account, moves class 1 to a runner."""
    pools = [[0, 1], [0, 3], [2, 4], [2], [3]]
    flow = Flow(pools, [1] * 5, 3, [1, 1, 1, 1, 0])
    flow.limit([9, 1])
    assert [flow.augment(number) for number in (0, 1, 2, 3, 4, 3)] == [1, 1, 1, 0, 1, 1]
    assert flow.machines == [1, 1]


def test_machines_in_use_count_against_a_later_limit() -> None:
    flow = Flow([[0, 1]], [1, 9], 1, [0])
    assert flow.augment(0, 9) + flow.augment(0, 2) == 3
    flow.limit([3])
    assert [flow.augment(0, 9), flow.augment(0, 9)] == [1, 0]
    flow.limit(None)
    assert flow.augment(0, 4) == 4
    assert flow.machines == [7]


@pytest.mark.parametrize("limited", [True, False])
def test_a_job_moves_all_jobs_of_a_chain(limited: bool) -> None:
    """Class n may use the pools n and n + 1. Each class but the last has a job in the pool n + 1."""
    pools = [[number + 1, number] for number in range(CHAIN)]
    flow = Flow(pools, [1] * (CHAIN + 1), 0, [0] * CHAIN)
    if limited:
        flow.limit([CHAIN + 1])
    for number in range(CHAIN):
        assert flow.augment(number) == 1
    before = flow.moved
    assert flow.augment(CHAIN - 1) == 1
    assert (before, flow.moved) == (False, True)
    assert flow.users[0] == {0: 1}
    assert flow.users[CHAIN] == {CHAIN - 1: 1}
    assert flow.users[CHAIN - 1] == {CHAIN - 1: 1}
    assert flow.augment(CHAIN - 1) == 0
    assert (flow.matched, flow.machines) == ([1] * (CHAIN - 1) + [2], [CHAIN + 1])


def test_a_chain_ends_at_the_class_with_free_supply() -> None:
    """Class 2 takes the place of class 1, which takes that of class 0, which takes the free pool 2."""
    flow = Flow([[1, 2], [0, 1], [0]], [1, 1, 1], 0, [0, 0, 0])
    flow.serve([[1, 0, 2]], range(3))
    assert flow.users == [{2: 1}, {1: 1}, {0: 1}]


def test_jobs_of_other_classes_than_the_shared_ones_are_not_served() -> None:
    flow = Flow([[0], [1]], [2, 2], 0, [0, 0])
    flow.serve([[0, 1]], [0])
    assert flow.matched == [1, 0]


def test_jobs_with_free_supply_move_nothing() -> None:
    flow = Flow([[0, 1], [1]], [2, 3], 1, [0, 0])
    flow.serve([[0, 1, 0, 1]], [0, 1])
    assert (flow.matched, flow.machines, flow.moved) == ([2, 2], [2], False)
    flow.serve([[0, 1, 0, 1, 0]], [0, 1])
    assert (flow.matched, flow.machines, flow.moved) == ([3, 2], [3], False)


def test_no_more_jobs_are_read_once_no_class_has_a_path() -> None:
    flow, read = Flow([[0], [0]], [2], 0, [0, 0]), iter([[0], [1], [0], [1], [0]])
    flow.serve(read, [0, 1])
    assert list(read) == [[1], [0]]
    assert flow.matched == [1, 1]
