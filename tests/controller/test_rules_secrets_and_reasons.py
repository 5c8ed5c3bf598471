"""Rules 9 and 10: no secret is stored or logged, and every waiting job has a reason."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from autoscaler.controller.ports.bootstrap import Assigned, BootstrapRefusedError
from autoscaler.controller.ports.github import (
    GitHubError,
    NewRegistration,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
    RunnerExistsError,
)
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.model.accounting import FailureCause
from autoscaler.model.catalogue import CapacityType, IdlePolicy, Limits
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.reasons.table import Unmatched
from tests.controller.agents import Agent, launched, queue, refusal, say
from tests.controller.controllers import Controller, World
from tests.controller.fakes_github import AnswerLost
from tests.controller.fakes_provider import Lost, Partly
from tests.controller.living_world import LivingWorld
from tests.controller.virtual_time import on_virtual_time, run
from tests.planner.fleets import EAST, catalogue, sku

DETERMINED = settings(derandomize=True, deadline=None, max_examples=20, database=None)
LABEL_VALUES = {
    "gpu",
    "cpu",
    EAST,
    "success",
    "unknown",
    "",
    *FailureClass,
    *TerminationReason,
    *Unmatched,
    *CapacityType,
    *FailureCause,
    *(one.zone for known in sku("gpu").launch_options for one in known.offerings),
}

registration_steps: st.SearchStrategy[GitHubError | AnswerLost | None] = st.sampled_from(
    [
        None,
        RetryLaterError("429", 3.0),
        OperatorError("403"),
        RunnerExistsError("409"),
        AnswerLost(RegistrationOutcomeUnknownError("reset")),
    ]
)
launch_steps = st.sampled_from(
    [
        None,
        Lost(),
        OutcomeUnknownError("reset"),
        ProviderError(FailureClass.CONFIGURATION, "InvalidParameter", "?"),
        Partly(0),
    ]
)


@pytest.mark.case(
    "a job reads user data and the metadata service: they contain no secret",
    topic="Hostile input",
    source="GitHub: secure use; EC2: user data",
)
@DETERMINED
@given(
    registrations=st.lists(registration_steps, max_size=4),
    launches=st.lists(launch_steps, max_size=3),
    crash_points=st.lists(st.integers(1, 120), max_size=3),
)
def test_no_secret_is_in_any_record_row_label_or_log_line(
    registrations: list[GitHubError | AnswerLost | None],
    launches: list[ProviderError | OutcomeUnknownError | Partly | Lost | None],
    crash_points: list[int | None],
) -> None:
    async def scenario() -> LivingWorld:
        world = World()
        world.github.script("register", *registrations)
        world.east.launch_script.extend(launches)
        living = LivingWorld(world)
        for job in (1, 2, 3):
            living.queue(job)
        await living.run([*crash_points, None])
        return living

    with capture_logs() as lines:
        living = run(scenario())
    store = living.world.store
    assert living.world.github.secrets, "there were secrets to leak"
    for written in (
        store.commits,
        store.inbox,
        living.world.telemetry,
        lines,
        living.world.east.sent,
    ):
        assert "SECRET" not in repr(written)


@on_virtual_time
async def test_refusals_show_no_secret() -> None:
    world = World()
    with capture_logs() as lines:
        controller, (agent,) = await launched(world)
        with pytest.raises(BootstrapRefusedError) as refused:
            await agent.attest(b"refused:signature")
        assert "SECRET" not in str(refused.value)
        await agent.make_ready()
        await controller.turn()
        assigned = await agent.take_assignment()
        assert "SECRET" in assigned.jit_config
        stranger = Agent(controller, agent.instance, "SECRET-NONCE-of-a-stranger")
        stranger.machine = agent.machine
        assert await refusal(stranger.poll()) == (401, "nonce")
        controller.bootstrap.shut_down()
    assert "SECRET" not in repr((world.store.commits, world.telemetry, lines))


def test_the_values_that_carry_a_secret_do_not_show_it() -> None:
    assert "SECRET" not in repr(Assigned(RunnerName("r"), "SECRET-JIT"))
    assert "SECRET" not in repr(NewRegistration(1, "SECRET-JIT"))


CROWDED = catalogue(
    sku("gpu", max_machines=1, idle=IdlePolicy(timeout=60.0)), sku("cpu"), limits=Limits(machines=2)
)


@pytest.mark.case(
    "jobs wait for ever without a visible reason",
    topic="Complaints about other fleets",
    source="ARC#3649; ARC#3420; ARC#3953; ARC#4027; GAR#4653; GAR#2925; runs-on#540",
)
@DETERMINED
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["queue", "wait", "start", "complete", "become_ready", "pass"]),
            st.integers(1, 6),
            st.sampled_from([("gpu",), ("cpu",), ("gpu", "linux"), ("unserved",)]),
        ),
        max_size=25,
    ),
    launches=st.lists(launch_steps, max_size=4),
)
@on_virtual_time
async def test_every_job_that_waits_has_a_reason(
    steps: list[tuple[str, int, tuple[str, ...]]],
    launches: list[ProviderError | OutcomeUnknownError | Partly | Lost | None],
) -> None:
    world = World(catalogue=CROWDED)
    world.east.launch_script.extend(launches)
    controller = Controller(world)
    await controller.resume()
    for what, job, labels in steps:
        await _step(controller, what, job, labels)
        await controller.turn(then=0.0)
        _check_reasons(controller)
        await asyncio.sleep(5.0)
    assert controller.crashes == []
    for _, *values in world.telemetry.said:
        assert set(values) <= LABEL_VALUES
    await controller.kill()


async def _step(controller: Controller, what: str, job: int, labels: tuple[str, ...]) -> None:
    match what:
        case "queue":
            await say(controller, job, JobState.QUEUED, labels=labels)
        case "wait":
            await say(controller, job, JobState.WAITING, labels=labels)
        case "start":
            await say(controller, job, JobState.IN_PROGRESS, labels=labels)
        case "complete":
            await say(controller, job, JobState.COMPLETED, labels=labels)
        case "become_ready":
            for machine in tuple(controller.state.machines.values()):
                if (
                    machine.state is MachineState.LAUNCHED
                    and machine.placement.provider_id is not None
                ):
                    instance = controller.world.east.instances[machine.placement.provider_id]
                    await Agent(controller, instance).make_ready()
        case _:
            await asyncio.sleep(30.0)


def _check_reasons(controller: Controller) -> None:
    reported = {
        demand: sum(run.count for run in runs)
        for demand, runs in controller.loop.plan.waiting.items()
    }
    waiting = Counter(
        job.demand
        for job in controller.state.jobs.values()
        if job.state is JobState.QUEUED and job.demand is not None
    )
    assert reported == waiting
    assert all(run.message for runs in controller.loop.plan.waiting.values() for run in runs)


@pytest.mark.case(
    "no metric of the time in the queue",
    topic="Complaints about other fleets",
    source="ARC#3423; ARC#4431; GAR#2025",
)
@on_virtual_time
async def test_the_metrics_learn_of_jobs_and_machines_once() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    began = controller.state.jobs[JobId(1)].queued_at
    await world.clock.sleep(30.0)
    for _ in range(2):
        await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
        await controller.turn()
    (started,) = world.telemetry.started
    assert started[1] == pytest.approx(controller.state.jobs[JobId(1)].started_at - began)  # type: ignore[operator]
    assert world.telemetry.counts.jobs_in_progress == {"gpu": 1}
    for _ in range(2):
        await say(controller, 1, JobState.COMPLETED, assigned.runner)
        await controller.turn()
    assert world.telemetry.said == [
        ("launches", "gpu", EAST),
        ("machine_launched", EAST, CapacityType.ON_DEMAND, "a"),
        ("job_started", "gpu"),
        ("job_completed", "gpu", "success"),
    ]


@on_virtual_time
async def test_the_counts_of_the_fleet_are_by_sku_and_state() -> None:
    world = World()
    controller, (one, _) = await launched(world, jobs=2)
    await one.make_ready()
    await queue(controller, 3)
    await controller.intake.apply_waiting()
    counts = fleet_counts(controller.state, world.clock.now())
    assert counts.jobs_waiting == {"gpu": 3}
    filled = {key: count for key, count in counts.machines.items() if count}
    assert filled == {("gpu", MachineState.LAUNCHED): 1, ("gpu", MachineState.READY): 1}
    assert counts.dollars_per_hour == 2.0
    assert counts.machines_foreign == 0
