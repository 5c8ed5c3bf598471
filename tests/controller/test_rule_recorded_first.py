"""Rule 3: recorded first, then sent. A crash at any point launches nothing twice and leaks nothing."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.controller.ports.github import (
    GitHubError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
    RunnerExistsError,
)
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import JobId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import REPEAT_WINDOW, LaunchRequest
from autoscaler.model.machines.machine import Machine
from tests.controller.controllers import World
from tests.controller.fakes_github import AnswerLost
from tests.controller.fakes_provider import Lost, Partly
from tests.controller.living_world import LivingWorld
from tests.controller.virtual_time import run

DETERMINED = settings(derandomize=True, deadline=None, max_examples=60, database=None)
LAST_CUT = 220
"""More steps than a run of one job has, as the test without a crash checks."""


async def live(
    world: World, jobs: int, crash_points: list[int | None], cancelled: frozenset[int] = frozenset()
) -> LivingWorld:
    """Queue some jobs, and run controllers with these crash points until everything is done."""
    living = LivingWorld(world)
    for job in range(1, jobs + 1):
        living.queue(job)
    for job in cancelled:
        if job <= jobs:
            living.cancel(job)
    await living.run([*crash_points, None])
    return living


def check(living: LivingWorld) -> None:
    world = living.world
    assert living.crashes == []
    assert living.invariants.violations == [], "for example sent before it was stored"
    assert world.east.violations == []
    _check_requests(world)
    _check_slots(world)
    for job in living.jobs.values():
        assert job.starts <= 1, "a job that ran twice"
    assert world.east.running == []
    assert world.github.registrations == {}
    assert not any(m.occupies for m in world.store.of_kind(Machine))
    assert len(set(world.github.registered)) == len(world.github.registered)


def _check_requests(world: World) -> None:
    by_token: dict[str, list[tuple[float, str]]] = {}
    for sent in world.east.sent:
        by_token.setdefault(json.loads(sent.request)["token"], []).append((sent.at, sent.request))
    for tries in by_token.values():
        assert len({request for _, request in tries}) == 1, "a repeat that is not byte-identical"
        assert tries[-1][0] - tries[0][0] <= REPEAT_WINDOW
    requests = {call.id: call.body for call in world.store.of_kind(LaunchRequest)}
    for sent in world.east.sent:
        assert requests[json.loads(sent.request)["launch_request"]] == sent.request


def _check_slots(world: World) -> None:
    slots = {call.id: len(call.slots) for call in world.store.of_kind(LaunchRequest)}
    for call, machines in Counter(i.call for i in world.east.instances.values()).items():
        assert machines <= slots[call], "more machines than slots"
    bound = [
        m.placement.provider_id
        for m in world.store.of_kind(Machine)
        if m.placement.provider_id is not None
    ]
    assert len(set(bound)) == len(bound), "a machine in two slots"


def test_a_job_runs_once_and_its_machine_and_registration_are_removed() -> None:
    living = run(live(World(), 1, []))
    check(living)
    assert living.jobs[JobId(1)].starts == 1
    assert len(living.world.east.instances) == 1
    assert living.process is not None
    assert 30 < living.process.crash_point.calls < LAST_CUT


@pytest.mark.case(
    "the controller is killed at any point: nothing is launched twice, nothing leaks",
    topic="EC2's machines",
    source="EC2: idempotency",
)
@pytest.mark.parametrize("cuts", [range(n, n + 20) for n in range(1, LAST_CUT, 20)], ids=str)
def test_a_crash_at_any_point_launches_nothing_twice_and_leaks_nothing(cuts: range) -> None:
    for cut in cuts:
        living = run(live(World(), 1, [cut]))
        check(living)
        assert living.jobs[JobId(1)].starts == 1, cut
        assert len(living.world.east.instances) == 1, f"launched again after a crash at {cut}"


launch_steps = st.sampled_from(
    [
        None,
        Lost(),
        OutcomeUnknownError("reset"),
        ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later", 2.0),
        ProviderError(FailureClass.UNKNOWN, "InternalFailure", "?"),
        Partly(1),
    ]
)
registration_steps: st.SearchStrategy[GitHubError | AnswerLost | None] = st.sampled_from(
    [
        None,
        RetryLaterError("429", 3.0),
        RunnerExistsError("409"),
        RegistrationOutcomeUnknownError("502"),
        AnswerLost(RegistrationOutcomeUnknownError("reset")),
    ]
)
other_steps: st.SearchStrategy[GitHubError | AnswerLost | None] = st.sampled_from(
    [None, RetryLaterError("502", 1.0), AnswerLost(RetryLaterError("504", 1.0))]
)


@DETERMINED
@given(
    jobs=st.integers(1, 4),
    cancelled=st.frozensets(st.integers(1, 4), max_size=2),
    crash_points=st.lists(st.integers(1, 150), max_size=4),
    launches=st.lists(launch_steps, max_size=4),
    registrations=st.lists(registration_steps, max_size=4),
    others=st.lists(other_steps, max_size=4),
)
def test_the_controller_recovers_from_any_combination_of_failures(
    jobs: int,
    cancelled: frozenset[int],
    crash_points: list[int | None],
    launches: list[ProviderError | OutcomeUnknownError | Partly | Lost | None],
    registrations: list[GitHubError | AnswerLost | None],
    others: list[GitHubError | AnswerLost | None],
) -> None:
    async def scenario() -> LivingWorld:
        world = World()
        world.east.launch_script.extend(launches)
        world.github.script("register", *registrations)
        for method in ("find_runner", "read_runner", "delete_runner", "redeliver_failed"):
            world.github.script(method, *others)
        return await live(world, jobs, crash_points, cancelled)

    living = run(scenario())
    check(living)
    for job in living.jobs.values():
        assert job.starts == (0 if job.id in cancelled else 1)
