"""Every waiting job has a reason code from a fixed list, and the time when the reason ends (rule 10)."""

import dataclasses

import pytest

from autoscaler.model.catalogue import CapacityType, LaunchOption, Limits
from autoscaler.model.cooldowns import (
    Cooldown,
    boots_key,
    exits_key,
    launch_option_key,
    offering_key,
    throttle_key,
)
from autoscaler.model.jobs.job import Admission
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from tests.ledger.builders import GPU, GPU_CLASS, World
from tests.planner.fleets import EAST, catalogue, offering, sku

SPOT = offering("g5", "a", CapacityType.SPOT, 0.4, "G-spot")
OD = offering("g5", "a", CapacityType.ON_DEMAND, 1.0)
ONE_OPTION = dataclasses.replace(
    sku(),
    launch_options=(LaunchOption(EAST, (CapacityType.SPOT, CapacityType.ON_DEMAND), (SPOT, OD)),),
)


def blocked(world: World) -> tuple[WaitReason, ...]:
    """Return why the newest of two jobs waits."""
    world.queue(901, 902)
    run = world.plan().waiting[GPU_CLASS][-1]
    assert run.blocked
    return run.reasons


def held(*keys: str, failure: FailureClass = FailureClass.CAPACITY, failures: int = 1) -> World:
    world = World(catalogue(ONE_OPTION))
    for key in keys:
        world.state.cooldowns[key] = Cooldown(key, world.now + 50.0, failures, "words", failure)
    return world


@pytest.mark.parametrize("code", [*FailureClass, *(a for a in Admission if a != "admitted")])
def test_the_codes_of_failures_and_refusals_are_codes_of_waiting_jobs(code: str) -> None:
    assert WaitCode(code)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(machines=0), WaitCode.FLEET_MACHINES),
        (Limits(dollars_per_hour=0.1), WaitCode.FLEET_DOLLARS),
        (Limits(quotas={SPOT.quota_key: 0, OD.quota_key: 0}), WaitCode.QUOTA),
    ],
)
def test_a_limit_has_its_code_and_no_known_end(limits: Limits, code: WaitCode) -> None:
    reasons = blocked(World(catalogue(ONE_OPTION, limits=limits)))
    assert {(one.code, one.until) for one in reasons} == {(code, None)}


def test_max_machines_has_its_code() -> None:
    world = World(catalogue(dataclasses.replace(ONE_OPTION, max_machines=0)))
    assert [one.code for one in blocked(world)] == [WaitCode.MAX_MACHINES]


@pytest.mark.parametrize("failure", FailureClass)
def test_a_hold_has_the_code_of_its_failure_and_ends_with_it(failure: FailureClass) -> None:
    world = held(launch_option_key(GPU, 0), failure=failure)
    assert [(one.code.value, one.until) for one in blocked(world)] == [
        (failure.value, world.now + 50.0)
    ]


def test_the_code_of_a_job_is_that_of_the_preferred_offering() -> None:
    world = held(offering_key(SPOT.key))
    world.state.cooldowns[offering_key(OD.key)] = Cooldown(
        offering_key(OD.key), world.now + 9.0, 1, "words", FailureClass.CONFIGURATION
    )
    assert [(one.code.value, one.until) for one in blocked(world)] == [
        ("capacity", world.now + 50.0),
        ("configuration", world.now + 9.0),
    ]
    assert world.plan().waiting[GPU_CLASS][-1].code is WaitCode.CAPACITY


def test_a_throttled_provider_has_its_code_and_the_time_of_the_next_launch() -> None:
    world = held(throttle_key(EAST), failure=FailureClass.THROTTLED)
    assert [(one.code, one.until) for one in blocked(world)] == [
        (WaitCode.THROTTLED, world.now + 50.0)
    ]


def test_an_open_circuit_breaker_has_its_code_and_the_time_of_the_probe() -> None:
    world = held(exits_key(GPU), failures=3)
    assert [(one.code, one.until) for one in blocked(world)] == [
        (WaitCode.CIRCUIT_OPEN, world.now + 50.0)
    ]
    world = held(boots_key(GPU), failures=3)
    world.launch(1)
    assert [(one.code, one.until) for one in blocked(world)] == [(WaitCode.CIRCUIT_OPEN, None)]


def test_a_sku_without_offerings_has_its_code() -> None:
    world = World(
        catalogue(
            dataclasses.replace(
                sku(), launch_options=(LaunchOption(EAST, (CapacityType.SPOT,), ()),)
            )
        )
    )
    assert [one.code for one in blocked(world)] == [WaitCode.NO_OFFERING]
