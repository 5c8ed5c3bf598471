"""RegistrationBudget: how many machines may be launched now, and when a launch request is worth its token."""

import dataclasses
import random
from collections import Counter

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import Catalogue, OperatingSystem, RegistrationRate
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.plan import Launch
from autoscaler.planner.matching.flow import Flow, Path
from autoscaler.planner.matching.maximum import Matching, Supply, SupplyKind
from autoscaler.planner.registration import (
    RegistrationBudget,
    expected_boots,
    registrable_machines,
)
from tests.ledger.builders import GPU, GPU_CLASS, START, World, listed
from tests.planner.fleets import catalogue, sku

GITHUB = RegistrationRate()
SLOW = RegistrationRate(burst=30, per_second=0.1)


def reached(
    known: Catalogue, level: float, ready: int = 0, coming: int = 0, age: float = 0.0
) -> int:
    """Return how many machines of `acme` can register, with so many tokens and booting machines of this age."""
    world = World(known)
    world.queue(1)
    if coming:
        world.launch(coming)
    world.now += age
    world.state.registration_levels["acme"] = (level, world.now)
    return registrable_machines(world.fleet(), {Supply(SupplyKind.READY, sku=GPU): ready}, ())[
        "acme"
    ]


@pytest.mark.parametrize(
    ("level", "ready", "coming", "age", "machines"),
    [
        # Without booting machines: the tokens when a new one is ready (in 60 s), and those of a minute more.
        (30.0, 0, 0, 0.0, 30 + 6),
        (0.0, 0, 0, 0.0, 6 + 6),
        (10.0, 0, 0, 0.0, 16 + 6),
        (27.0, 0, 0, 0.0, 30 + 6),
        # Ready machines use tokens meanwhile, so more than the burst can register.
        (30.0, 4, 0, 0.0, 4 + 30 + 6),
        (30.0, 20, 0, 0.0, 20 + 16 + 6),
        (0.0, 4, 0, 0.0, 4 + 2 + 6),
        (0.0, 100, 0, 0.0, 6 + 6),
        # Booting machines use no token before the first of them is ready.
        (0.0, 0, 4, 0.0, 6 + 6),
        (30.0, 0, 36, 0.0, 30 + 6),
        (30.0, 0, 40, 50.0, 30 + 5 + 6),
        (30.0, 0, 40, 500.0, 30 + 6 + 6),
    ],
)
def test_registrable_machines_are_those_that_register_within_a_minute_of_ready(
    level: float, ready: int, coming: int, age: float, machines: int
) -> None:
    assert reached(catalogue(registration=SLOW), level, ready, coming, age) == machines


@pytest.mark.parametrize(("late", "machines"), [(1, 1 + 1 + 30 + 6), (100, 1 + 33 + 6)])
def test_each_machine_uses_registration_budget_from_when_it_is_ready(
    late: int, machines: int
) -> None:
    world = World(catalogue(registration=SLOW))
    world.queue(1)
    world.launch(1)
    world.now += 30.0
    world.launch(late, "late")
    world.now += 30.0
    world.state.registration_levels["acme"] = (30.0, world.now)
    # One machine is ready now, the others in half a minute, when the bucket is full again.
    assert registrable_machines(world.fleet(), {}, ()) == {"acme": machines}


def test_machines_launched_in_a_plan_do_not_raise_its_registration_budget() -> None:
    world = World(catalogue(registration=GITHUB))
    world.launch(1)
    world.now += 60.0
    world.queue(*range(1, 277))
    assert sum(launch.count for launch in world.intents(Launch)) > 100
    world.carry_out()
    assert world.plan().intents == ()


def test_an_open_slot_uses_registration_budget_only_in_its_retry_window() -> None:
    world = World(catalogue(registration=SLOW))
    world.queue(1)
    world.send(40)
    world.state.registration_levels["acme"] = (30.0, world.now)
    world.now += 599.0
    assert registrable_machines(world.fleet(), {}, ()) == {"acme": 30 + 6 + 6}
    world.now += 1.0
    assert registrable_machines(world.fleet(), {}, ()) == {"acme": 30 + 6}


def test_a_terminating_machine_is_not_registrable() -> None:
    world = World(catalogue(registration=SLOW))
    world.queue(1)
    leaving = world.launch(40)
    world.state.registration_levels["acme"] = (30.0, world.now)
    world.now += 60.0
    assert registrable_machines(world.fleet(), {}, leaving) == {"acme": 30 + 6}


@pytest.mark.parametrize(
    ("skus", "leaving", "boots"),
    [
        ("gpu", "", "a1 a2 u0"),
        ("cpu", "", "b0 b1"),
        ("gpu cpu", "", "a1 a2 u0 b0 b1"),
        ("gpu", "a0", "a1 a2 u0"),  # a0 is ready
        ("gpu", "a1 b0", "a2 u0"),
        ("gpu", "u1", "a1 a2 u0"),  # nothing repeats the request of u1
        ("gpu cpu", "a1 a2 b0 b1 u0 v0", ""),
    ],
)
def test_leaving_machines_and_slots_after_their_retry_window_are_not_expected(
    skus: str, leaving: str, boots: str
) -> None:
    world = World(catalogue(sku(), sku("cpu")))
    world.launch(3, "a")
    world.launch(2, "b", "cpu")
    world.send(2, "u")
    world.send(1, "v", "cpu")
    known = (world.listed(name) for name in ("a0", "a1", "a2", "b0", "b1"))
    world.lists(listed("i-u0", call="u"), *known)
    world.boot("a0")
    world.do(e.HealthChecksReported, MachineId("a0"), True, "ok")
    world.now += 600.0
    names, gone = map(SkuName, skus.split()), map(MachineId, leaving.split())
    expected = Counter([START] * len(boots.split()))
    assert expected_boots(world.fleet(), set(names), set(gone)) == expected


def test_machines_that_serve_jobs_already_use_up_registration_budget() -> None:
    matching = Matching()
    matching.machines["acme"] = 4
    known = RegistrationBudget(World().fleet(), {"acme": 12})
    assert known.allowed("acme", matching) == 8


def test_a_slow_boot_permits_more_launches() -> None:
    windows = dataclasses.replace(sku(), os=OperatingSystem.WINDOWS)
    assert reached(catalogue(windows, registration=SLOW), 0.0) == 18 + 6
    measured = World(catalogue(registration=SLOW))
    measured.queue(1)
    measured.state.registration_levels["acme"] = (0.0, START)
    measured.state.boot_seconds[GPU] = 20.0
    assert registrable_machines(measured.fleet(), {}, ()) == {"acme": 2 + 6}


@pytest.mark.parametrize(
    ("rate", "wanted", "allowed", "worth"),
    [
        (GITHUB, 1000, 149, False),
        (GITHUB, 1000, 150, True),
        (GITHUB, 10, 9, False),
        (GITHUB, 10, 10, True),
        (RegistrationRate(burst=1, per_second=0.001), 5, 1, True),
        (RegistrationRate(burst=1, per_second=0.001), 5, 0, False),
    ],
)
def test_a_launch_waits_for_a_minute_of_registration_budget_or_for_all_machines(
    rate: RegistrationRate, wanted: int, allowed: int, worth: bool
) -> None:
    known = RegistrationBudget(World(catalogue(registration=rate)).fleet(), {})
    assert known.worth_a_request(wanted, allowed) is worth


def test_no_more_machines_are_launched_than_can_register_after_they_boot() -> None:
    world = World(catalogue(registration=GITHUB))
    world.queue(*range(1, 501))
    assert [launch.count for launch in world.intents(Launch)] == [175]
    (served, rest) = world.plan().waiting[GPU_CLASS]
    assert (served.count, rest.count) == (175, 325)
    assert (
        rest.message
        == "the registration rate limit (github.registrations) allows no further runner yet"
    )


def test_accounts_do_not_share_their_registration_budget() -> None:
    known = catalogue(sku("gpu"), sku("cpu"), registration=GITHUB)
    more = dataclasses.replace(known.scopes[0], owner="other")
    world = World(dataclasses.replace(known, scopes=(*known.scopes, more)))
    world.queue(*range(1, 301))
    for job in range(301, 601):
        world.observe(job, JobState.QUEUED, ("cpu",), repository="other/widgets")
    launches = {launch.sku: launch.count for launch in world.intents(Launch)}
    assert launches == {"gpu": 175, "cpu": 175}


def test_accounts_that_share_a_sku_launch_only_for_their_own_registration_budget() -> None:
    known = catalogue(registration=GITHUB)
    more = dataclasses.replace(known.scopes[0], owner="other")
    world = World(dataclasses.replace(known, scopes=(*known.scopes, more)))
    world.queue(*range(1, 301))
    world.now += 1
    for job in range(301, 601):
        world.observe(job, JobState.QUEUED, ("gpu",), repository="other/widgets")
    assert sum(launch.count for launch in world.intents(Launch)) == 350
    world.carry_out()
    assert world.intents(Launch) == []


FAST = RegistrationRate(burst=30, per_second=1.0)


def test_a_machine_launched_now_registers_after_its_whole_boot_time() -> None:
    assert reached(catalogue(registration=FAST), 30.0, coming=1) == 30 + 60


def test_a_machine_that_becomes_ready_again_has_no_boot_age() -> None:
    world = World(catalogue(registration=FAST))
    world.queue(1)
    assert (
        registrable_machines(world.fleet(), {Supply(SupplyKind.COMING, sku=GPU): 1}, ())["acme"]
        == 30 + 60
    )


def test_all_classes_of_an_account_share_its_registration_budget() -> None:
    world = World(catalogue(registration=SLOW))
    world.state.registration_levels["acme"] = (0.0, START)
    world.launch(8)
    world.queue(*range(11))
    assert [launch.count for launch in world.intents(Launch)] == [3]
    world.queue(*range(11, 14), labels=("gpu", "linux"))
    assert world.intents(Launch) == []


class Counting(Flow):
    """A matching that counts the pools in which its searches look for classes that could move."""

    looked_at = 0

    def _first_with_free(self, classes: int, end: int) -> tuple[int, int] | None:
        self.looked_at += 1
        return super()._first_with_free(classes, end)


class Forgetful(Counting):
    """A matching that remembers no failed search."""

    def _shortest(self, root: int, end: int) -> Path | None:
        self._stuck.clear()
        return super()._shortest(root, end)


@pytest.mark.parametrize("seed", range(60))
def test_remembering_failed_searches_changes_no_match(seed: int) -> None:
    draw = random.Random(seed)
    owners, classes, runners, machines = 2, 12, 8, 4
    accounts = [draw.randrange(owners) for _ in range(classes)]
    free = [draw.randrange(3) for _ in range(runners)] + [
        draw.randrange(6) for _ in range(machines)
    ]
    # Runners serve only the classes of the account in which they are registered.
    pools = [
        [
            *(n for n in range(runners) if n % owners == account and draw.random() < 0.4),
            *(n for n in range(runners, runners + machines) if draw.random() < 0.5),
        ]
        for account in accounts
    ]
    ages = [[draw.randrange(classes) for _ in range(40)]]
    bound = [draw.randrange(4) for _ in range(owners)]
    found = []
    for kind in (Flow, Forgetful):
        flow = kind([list(one) for one in pools], list(free), runners, accounts)
        flow.limit(list(bound))
        flow.serve(ages, range(classes))
        bounded = list(flow.matched)
        flow.limit(None)
        flow.serve(ages, range(classes))
        found.append((bounded, flow.matched, flow.users, flow.machines))
    assert found[0] == found[1]


@pytest.mark.parametrize(("kind", "most"), [(Counting, 51), (Forgetful, 51 * 50)])
def test_classes_of_an_account_without_budget_are_searched_once(
    kind: type[Counting], most: int
) -> None:
    """Each of 50 classes can use its own runner and that of the next class; none can register a machine."""
    classes = range(50)
    pools = [[number, (number + 1) % 50, 50] for number in classes]
    flow = kind(pools, [1] * 50 + [1_000], 50, [0] * 50)
    flow.limit([0])
    flow.serve([[*classes, *classes]], classes)
    assert flow.matched == [1] * 50
    assert flow.looked_at == most
