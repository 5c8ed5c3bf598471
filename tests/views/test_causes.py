"""One cause is one fault: what is grouped, what follows from what, and what a fault says."""

from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import Limits
from autoscaler.model.cooldowns import (
    Cooldown,
    RateLimit,
    boots_key,
    exits_key,
    launch_option_key,
    registration_key,
)
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import FaultCode, WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, RECOVERS_AFTER, Starts
from autoscaler.views.faults.causes import by_cause, cause_of_wait
from autoscaler.views.faults.counts import Counts
from autoscaler.views.faults.fault_list import FLOOD
from autoscaler.views.jobs.job import view_of
from autoscaler.views.jobs.waits import next_event
from autoscaler.views.offerings import offerings_of
from autoscaler.views.status import StatusView, status
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku

GPU, CPU = SkuName("gpu"), SkuName("cpu")
REFUSED = "AuthFailure: AWS was not able to validate the provided access credentials"
RENEW = {"AuthFailure": "renew the credentials"}


def look(world: World, **counts: object) -> StatusView:
    known = Counts({}, 0.0, **counts)  # type: ignore[arg-type]
    return status(world.fleet(), world.plan().waiting, known)


def two_skus() -> World:
    world = World(catalogue(sku(), sku("cpu")))
    world.queue(1, 2)
    world.queue(3, labels=("cpu",))
    return world


def refuse(world: World, name: SkuName, failures: int, hold: float) -> None:
    key = launch_option_key(name, 0)
    failure = FailureClass.CONFIGURATION
    row = Cooldown(key, world.now + hold, failures, REFUSED, failure, error="AuthFailure")
    world.state.set_cooldown(row)


def test_expired_credentials_are_one_fault_with_all_skus_and_what_to_do() -> None:
    world = two_skus()
    refuse(world, GPU, 1, 60.0)
    refuse(world, CPU, 1, 60.0)
    (fault,) = look(world, mends=RENEW).faults
    assert (fault.code, fault.about) == ("configuration", "east AuthFailure")
    assert (set(fault.skus), fault.jobs) == ({"gpu", "cpu"}, 3)
    assert fault.mend == "renew the credentials"
    assert fault.message.startswith("3 jobs wait: ")


def test_a_circuit_breaker_that_opens_for_a_cause_keeps_its_key() -> None:
    world = two_skus()
    keys = []
    for failures, hold in ((1, 60.0), (3, 60.0), (3, -1.0)):
        refuse(world, GPU, failures, hold)
        refuse(world, CPU, failures, hold)
        keys.append([fault.key for fault in look(world).faults])
    assert keys == [["configuration:east AuthFailure"]] * 3


def test_two_open_breakers_with_the_same_words_are_distinguished() -> None:
    """The jobs wait for the runners that exit, and the option's breaker has another cause."""
    world = World()
    world.queue(1)
    words = "AuthFailure: says the job"
    option, exits = launch_option_key(GPU, 0), exits_key(GPU)
    failure = FailureClass.CONFIGURATION
    world.state.set_cooldown(Cooldown(option, 0.0, 3, words, failure, error="AuthFailure"))
    world.state.set_cooldown(Cooldown(exits, world.now + 60.0, 3, words))
    found = {fault.key: fault.jobs for fault in look(world).faults}
    assert found == {"machines_fail:gpu": 1, "configuration:east AuthFailure": 0}


def test_an_open_breaker_is_that_of_its_sku_and_not_of_the_first_one_that_serves_the_jobs() -> None:
    world = two_skus()
    key = boots_key(CPU)
    row = Cooldown(key, world.now + 60.0, 3, "no attestation", FailureClass.BOOT_DEADLINE)
    world.state.set_cooldown(row)
    demand = DemandClass("org:acme", "default", ("gpu",), (GPU, CPU))
    reason = WaitReason(WaitCode.CIRCUIT_OPEN, where=key)
    assert cause_of_wait(world.fleet(), demand, reason) == (WaitCode.BOOT_DEADLINE, CPU)


def test_words_that_look_like_an_error_are_none() -> None:
    """A machine or a job may have written them: they name no cause, and no mend of an error."""
    world = World()
    world.queue(1)
    row = Cooldown(launch_option_key(GPU, 0), world.now + 60.0, 3, REFUSED, FailureClass.UNKNOWN)
    world.state.set_cooldown(row)
    (fault,) = look(world, mends=RENEW).faults
    assert (fault.key, fault.error) == ("machines_fail:gpu", "")
    assert fault.mend == WaitCode.CIRCUIT_OPEN.entry.mend


def test_failing_machines_of_a_sku_are_one_fault_on_hold_and_between_holds() -> None:
    world = World()
    world.queue(1)
    keys = set()
    for failure in (FailureClass.HEALTH_CHECK, FailureClass.BOOT_DEADLINE, FailureClass.UNKNOWN):
        for hold in (60.0, -1.0):
            for key in (launch_option_key(GPU, 0), boots_key(GPU)):
                row = Cooldown(key, world.now + hold, 3, "health checks: gpu_count", failure)
                world.state.set_cooldown(row)
            keys |= {fault.key for fault in look(world).faults}
    assert keys == {"machines_fail:gpu"}


def test_a_bad_image_is_one_fault_of_its_skus_with_their_breakers_and_jobs() -> None:
    world = two_skus()
    for name in (GPU, CPU):
        for key in (launch_option_key(name, 0), boots_key(name)):
            row = Cooldown(key, world.now + 60.0, 3, "health checks: x", FailureClass.HEALTH_CHECK)
            world.state.set_cooldown(row)
    observed = tuple(
        Fault("health_checks_fail", "ami-1", f"check of {name}", (name,)) for name in (GPU, CPU)
    )
    (fault,) = look(world, observed=observed).faults
    assert (fault.key, fault.jobs) == ("health_checks_fail:ami-1", 3)
    assert set(fault.effects) == {"health_check", "circuit_open", "option_circuit_open"}
    assert set(fault.skus) == {"gpu", "cpu"}


@pytest.mark.parametrize(
    ("error", "code", "cause"),
    [
        (
            RateLimit.SECONDARY,
            WaitCode.GITHUB_SECONDARY_LIMIT,
            "GitHub's secondary rate limit",
        ),
        (RateLimit.PRIMARY, WaitCode.GITHUB_PRIMARY_LIMIT, "GitHub's primary rate limit"),
        ("", WaitCode.REGISTRATION_ON_HOLD, "registrations refused"),
    ],
)
def test_a_rate_limit_of_github_has_its_name(error: str, code: WaitCode, cause: str) -> None:
    """Whatever the words say: a proxy may have its own rate limit."""
    world = World()
    world.queue(1)
    world.launch(1, "a")
    world.boot("a0")
    world.do(e.HealthChecksReported, world.machine("a0").id, True, "ok")
    key = registration_key("org:acme")
    words = "throttled: 403 rate limit"
    world.state.set_cooldown(Cooldown(key, world.now + 60.0, 1, words, error=error))
    stale = Fault(FaultCode.GITHUB_LISTS_STALE, "acme", "old")
    first, *others = look(world, observed=(stale,)).faults
    assert (first.code, first.cause, first.jobs) == (code, cause, 1)
    is_limit = code is not WaitCode.REGISTRATION_ON_HOLD
    assert [one.code for one in others] == ([] if is_limit else ["github_lists_stale"])


def test_a_used_up_quota_says_how_much_is_used_in_numbers() -> None:
    world = World()
    world.state.quotas = {"east/G": 4}
    world.queue(*range(1, 4))
    world.launch(1, "a")
    (fault,) = look(world).faults
    assert fault.key == "quota:east/G"
    assert fault.message.endswith("; the fleet uses 4 of the 4 that it may use")


def test_the_fault_of_failing_health_checks_has_the_name_of_the_image() -> None:
    failed = Fault("health_checks_fail", "ami-1", "3 machines of image ami-1 failed", ("gpu",))
    (fault,) = look(World(), observed=(failed,), image_names={"ami-1": "gpu-linux-7"}).faults
    assert fault.message.endswith("; the name of image ami-1 is gpu-linux-7")
    (fault,) = look(World(), observed=(failed,)).faults
    assert fault.message == failed.message


def test_a_quota_of_nothing_is_asked_for_and_never_ends_by_itself() -> None:
    world = World()
    world.state.quotas = {"east/G": 0}
    world.queue(1)
    fleet, waiting = world.fleet(), world.plan().waiting
    (fault,) = look(world, mends={"G": "ask AWS"}).faults
    assert (fault.key, fault.mend) == ("quota:east/G", "ask AWS")
    assert "leaves this fleet nothing" in fault.message
    job = world.job(1)
    wait = view_of(fleet, waiting, job).wait
    assert wait is not None
    assert (
        next_event(fleet, job, wait).what == "the provider raises the quota, after you ask for it"
    )


def test_nothing_may_be_launched_under_a_limit_that_is_reached() -> None:
    world = World()
    world.state.quotas = {"east/G": 3}
    assert {"quota" in one.on_hold for one in offerings_of(world.fleet(), [GPU])} == {True}
    cheap = World(catalogue(sku(), limits=Limits(dollars_per_hour=0.5)))
    assert {one.on_hold for one in offerings_of(cheap.fleet(), [GPU])} == {
        "the fleet's limit of $0.5 an hour is reached"
    }
    assert {one.on_hold for one in offerings_of(World().fleet(), [GPU])} == {""}


def test_a_flood_names_its_repository() -> None:
    world = World(catalogue(sku(max_machines=1)))
    world.queue(*range(1, FLOOD + 2))
    (fault,) = look(world).faults
    assert fault.message.endswith("; 11 of the 11 open jobs are of acme/widgets")


def test_jobs_without_a_sku_are_a_fault_once_there_are_several_or_one_is_old() -> None:
    world = World()
    world.queue(1, labels=("gpuu",))
    assert look(world).faults == ()
    world.now += 1800.0
    (old,) = look(world).faults
    assert (old.code, old.jobs, old.runbook) == ("labels", 1, "JobsNotServed")
    assert "of acme/widgets with runs-on [gpuu], waits for 30m00s" in old.message
    several = World()
    several.queue(1, 2, 3, 4, labels=("gpuu",))
    assert look(several).faults == ()
    several.queue(5, labels=("gpuu",))
    assert [one.code for one in look(several).faults] == ["labels"]


def test_jobs_that_wait_past_the_objective_count_as_late() -> None:
    world = World()
    world.queue(1, 2)
    world.now += 301.0
    seen = look(world, objectives=DEFAULT_OBJECTIVES, last_hour={"gpu": Starts(8, 0)})
    assert (seen.overdue, seen.last_hour["gpu"].in_time) == (2, 0.8)
    (fault,) = seen.faults
    assert (
        fault.message
        == "2 jobs of 10 waited for longer than 5 minutes in the last hour; 2 wait still"
    )


def test_late_starts_of_the_past_say_when_they_ended() -> None:
    world = World()
    ended = world.now - RECOVERS_AFTER
    hour = {"gpu": Starts(10, 5, late_at=ended)}
    (fault,) = look(world, objectives=DEFAULT_OBJECTIVES, last_hour=hour).faults
    assert (fault.recovered_at, fault.is_page) == (ended, False)
    hour = {"gpu": Starts(10, 5, late_at=ended + 1.0)}
    (fault,) = look(world, objectives=DEFAULT_OBJECTIVES, last_hour=hour).faults
    assert (fault.recovered_at, fault.is_page) == (None, True)


def test_faults_are_in_the_order_of_their_urgency_and_their_jobs() -> None:
    found = (
        Fault("max_machines", "a", "", ("a",), 9),
        Fault("capacity", "east X", "", ("b",), 2),
        Fault("paused", "c", "", ("c",), 50),
        Fault("configuration", "east Y", "", ("d",), 3),
        Fault("store_fails", "", "", recovered_at=1.0),
    )
    order = [fault.code for fault in by_cause(found)]
    assert order == ["configuration", "capacity", "max_machines", "paused", "store_fails"]


def test_silent_machines_are_named_once_the_controller_reads_their_runners_at_github() -> None:
    world = World(catalogue(sku()))
    machines = world.make_ready(5)
    for machine in machines:
        world.assignment(machine)
    world.after(899.0)
    for machine in machines:
        world.do(e.RunnerReadRequested, machine)
    assert look(world).faults == ()
    world.after(1.0)
    (fault,) = look(world).faults
    assert (fault.code, fault.skus, fault.is_page) == ("machines_silent", ("gpu",), False)
    assert fault.message.startswith(
        "5 machines: assigned, and no heartbeat for 15m00s: c0, c1, c2, 2 more. "
    )
    world.do(e.MachineSeen, MachineId("c0"))
    (fault,) = look(world).faults
    assert fault.message.startswith("4 machines: ")


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        (FaultCode.CONTROLLER_SLOW, FaultCode.STORE_SLOW),
        (FaultCode.MACHINES_SILENT, FaultCode.LEAK_SUSPECTED),
        (WaitCode.NOT_ASSIGNED, FaultCode.LEAK_SUSPECTED),
    ],
)
def test_an_effect_on_the_whole_fleet_follows_from_its_cause(
    cause: FaultCode | WaitCode, effect: FaultCode
) -> None:
    (fault,) = by_cause([Fault(effect, "", "effect"), Fault(cause, "", "cause", ("gpu",))])
    assert (fault.code, fault.effects) == (cause, (effect,))
    (alone,) = by_cause([Fault(effect, "", "effect")])
    assert alone.code == effect


@pytest.mark.parametrize("limit", [WaitCode.GITHUB_PRIMARY_LIMIT, WaitCode.GITHUB_SECONDARY_LIMIT])
def test_lost_webhooks_and_a_rate_limit_of_github_are_two_causes(limit: WaitCode) -> None:
    """No webhook says that a job started, and no list. Both hold up jobs, and neither explains the other."""
    late = Fault(FaultCode.JOBS_START_LATE, "", "late", ("gpu",))
    unread = Fault(WaitCode.RUN_UNKNOWN, "acme", "unread", ("gpu",), jobs=1)
    stale = Fault(FaultCode.GITHUB_LISTS_STALE, "acme", "stale")
    silent = Fault(FaultCode.WEBHOOKS_SILENT, "", "silent")
    reached = Fault(limit, "acme", "limit", ("gpu",), jobs=2)
    found = by_cause([late, unread, stale, silent, reached])
    assert [one.code for one in found] == [limit, "webhooks_silent"]
    assert set(found[0].effects) == {"jobs_start_late", "run_unknown", "github_lists_stale"}


@pytest.mark.parametrize("limit", [WaitCode.GITHUB_PRIMARY_LIMIT, WaitCode.GITHUB_SECONDARY_LIMIT])
def test_what_github_does_not_show_under_a_rate_limit_is_an_effect_of_the_limit(
    limit: WaitCode,
) -> None:
    """In whatever order they come: one effect may be the cause of another."""
    unread = Fault(WaitCode.RUN_UNKNOWN, "acme", "unread", ("gpu",), jobs=1)
    stale = Fault(FaultCode.GITHUB_LISTS_STALE, "acme", "stale")
    low = Fault(FaultCode.GITHUB_BUDGET_LOW, "App 1, acme", "low")
    reached = Fault(limit, "acme", "limit", ("cpu",), jobs=1)
    assert by_cause([unread, stale])[0].code == FaultCode.GITHUB_LISTS_STALE
    assert [one.code for one in by_cause([unread, stale, low])] == [FaultCode.GITHUB_BUDGET_LOW]
    (fault,) = by_cause([unread, stale, reached])
    assert (fault.code, fault.jobs) == (limit, 2)
    assert by_cause([unread, replace(reached, about="globex")])[1:] != ()
