"""What /metrics shows after a scripted history, in virtual time: the values, not only the names."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autoscaler.controller.composition import Ports
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.controller.reporting.fleet_counts import report_offerings_on_hold
from autoscaler.model.events import JobObserved, LaunchFailure, MachineNoticed
from autoscaler.model.identifiers import JobId, RunnerName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import ExitReason
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.views.spending import SpendingKey
from tests.controller.agents import Agent
from tests.controller.controllers import Controller, World, delivery
from tests.controller.fakes_provider import Partly
from tests.controller.virtual_time import on_virtual_time
from tests.observability.test_metrics import value
from tests.planner.fleets import EAST

REPOSITORY = "acme/widgets"


def near(seconds: float) -> Any:
    """Return an expected time. Each event is stored first, which takes some milliseconds."""
    return pytest.approx(seconds, abs=1.0)


@dataclass
class MeasuredWorld(World):
    """A world whose controller reports to the real metrics."""

    metrics: PrometheusTelemetry = field(
        default_factory=lambda: PrometheusTelemetry([SkuName("gpu")], [EAST], "1", [REPOSITORY])
    )

    def ports(self) -> Ports:
        return replace(super().ports(), telemetry=self.metrics)

    def read(self, name: str, **labels: str) -> float | None:
        return value(self.metrics, name, **labels)


@dataclass
class Played:
    """A controller in a measured world, and what GitHub says of its jobs. Job 1 is of run 9."""

    world: MeasuredWorld = field(default_factory=MeasuredWorld)
    controller: Controller = field(init=False)

    def __post_init__(self) -> None:
        self.controller = Controller(self.world)

    async def say(
        self, state: JobState, job: int = 1, runner: RunnerName | None = None, **fields: Any
    ) -> None:
        """Record what GitHub reports now. `queued_at` is the time of the first report."""
        now = self.controller.journal.now
        known = self.controller.state.jobs.get(JobId(job))
        queued_at = known.queued_at if known is not None else now
        event = JobObserved(
            now,
            JobId(job),
            state,
            REPOSITORY,
            ("gpu",),
            queued_at,
            run_id=9,
            runner_name=runner,
            started_at=now if state is JobState.IN_PROGRESS else None,
            completed_at=now if state is JobState.COMPLETED else None,
        )
        await self.controller.journal.record(replace(event, **fields))

    async def starts_job(self) -> tuple[Agent, RunnerName]:
        """Queue job 1 and run it: ready 60 s after the launch, 5 s idle, in progress."""
        await self.controller.resume()
        await self.say(JobState.QUEUED)
        await self.controller.turn()  # prepared and launched within a second; 5 s pass
        (instance,) = self.world.east.running
        agent = Agent(self.controller, instance)
        await asyncio.sleep(35.0)
        await agent.attest()
        await asyncio.sleep(20.0)
        await agent.health_checks()
        await self.controller.turn(then=1.0)
        assigned = await agent.take_assignment()
        await agent.acknowledge(assigned.runner)
        await asyncio.sleep(4.0)
        await self.say(JobState.IN_PROGRESS, runner=assigned.runner)
        return agent, assigned.runner

    async def ends(self, agent: Agent, reason: ExitReason = ExitReason.EXITED) -> None:
        """Let the runner exit and the machine power off."""
        await agent.exit("left", reason)
        self.world.east.shut_down(agent.instance.id)
        await self.controller.machine_lists.list_machines(EAST)
        await self.controller.turn()


@on_virtual_time
async def test_a_wait_and_its_stages_add_up() -> None:
    played = Played()
    await played.starts_job()
    waited = played.world.read("job_queue_duration_seconds_sum", sku="gpu")
    stages = {
        stage: played.world.read("job_wait_seconds_total", sku="gpu", stage=stage) or 0.0
        for stage in ("decide", "launch", "boot", "health_checks", "register", "pick_up", "other")
    }
    assert waited == near(65.0)
    assert sum(stages.values()) == pytest.approx(waited)
    assert stages["launch"] == near(1.0)  # 0.5 s to prepare, 0.5 s to launch
    assert stages["boot"] == near(39.0)
    assert stages["health_checks"] == near(20.0)
    assert stages["pick_up"] == near(4.0)
    assert stages["other"] == 0.0
    bucket = {"stage": "boot", "le": "60.0"}
    assert played.world.read("job_wait_stage_duration_seconds_bucket", **bucket) == 1


@on_virtual_time
async def test_the_time_of_a_machine_is_counted_by_what_it_bought() -> None:
    played = Played()
    agent, runner = await played.starts_job()
    await asyncio.sleep(600.0)
    await played.say(JobState.COMPLETED, runner=runner, conclusion="success")
    await asyncio.sleep(30.0)
    await played.ends(agent)
    seconds = {
        use: played.world.read("machine_seconds_total", sku="gpu", use=use)
        for use in ("boot", "ready", "job", "end", "failed_launch")
    }
    assert seconds["boot"] == near(59.0)
    assert seconds["ready"] == near(5.0)
    assert seconds["job"] == near(600.0)
    stored = await played.world.store.usage(0)
    assert {one.use.value: one.seconds for one in stored} == {
        use: pytest.approx(time) for use, time in seconds.items() if time
    }
    assert [one.repository for one in stored] == ["", "", REPOSITORY, ""]
    spent = await played.controller.queries.spending(1, {SpendingKey.SKU})
    ((sku, dollars, jobs),) = [(row.sku, row.dollars, row.jobs) for row in spent.rows]
    assert (sku, jobs) == ("gpu", 1)
    assert dollars == pytest.approx(sum(one.dollars for one in stored))
    tomorrow = int(played.controller.journal.now // 86_400) + 1
    assert await played.world.store.usage(tomorrow) == ()
    assert seconds["end"] == near(30.0)
    assert seconds["failed_launch"] is None
    price = played.controller.state.offerings[
        next(iter(played.controller.state.offerings))
    ].dollars_per_hour
    paid = played.world.read("machine_dollars_total", sku="gpu", use="job")
    assert paid == pytest.approx((seconds["job"] or 0.0) * price / 3600.0)
    of_one = {"repository": REPOSITORY}
    assert played.world.read("repository_machine_seconds_total", **of_one) == near(600.0)
    assert played.world.read("repository_machine_dollars_total", **of_one) == paid
    assert played.world.read("repository_jobs_completed_total", **of_one, conclusion="success") == 1
    assert played.world.read("repository_job_queue_duration_seconds_count", **of_one) == 1


@on_virtual_time
async def test_a_machine_that_fails_its_health_checks_bought_a_failed_launch() -> None:
    played = Played()
    await played.controller.resume()
    await played.say(JobState.QUEUED)
    await played.controller.turn()
    (instance,) = played.world.east.running
    agent = Agent(played.controller, instance)
    await asyncio.sleep(95.0)
    await agent.attest()
    await agent.health_checks(passed=False, detail="gpu_count: 7 of 8")
    await played.controller.turn()
    read = played.world.read
    spent = read("machine_seconds_total", sku="gpu", use="failed_launch")
    assert spent == near(99.0)
    of_one = {"sku": "gpu", "provider": EAST, "capacity_type": "on-demand"}
    assert read("launches_total", **of_one) == 2, "it and its replacement"
    assert read("launch_failures_total", **of_one, reason="health_check") == 1
    assert read("machines_terminated_total", sku="gpu", reason="failed") == 1
    (machine,) = (one for one in played.controller.state.machines.values() if one.failure)
    failed = {"sku": "gpu", "check": "gpu_count", "image": machine.placement.image}
    assert failed["image"]
    assert read("health_checks_failed_total", **failed) == 1


@pytest.mark.parametrize(
    ("conclusion", "reason", "cause"),
    [
        ("failure", ExitReason.EXITED, "code"),
        ("failure", ExitReason.HUNG, "infrastructure"),
        ("cancelled", ExitReason.STOPPED, "infrastructure"),
        ("cancelled", ExitReason.EXITED, None),
        ("success", ExitReason.EXITED, None),
    ],
)
@pytest.mark.parametrize("exits_first", [False, True])
@on_virtual_time
async def test_a_failed_job_is_counted_once_by_its_cause(
    conclusion: str, reason: ExitReason, cause: str | None, exits_first: bool
) -> None:
    played = Played()
    agent, runner = await played.starts_job()
    if exits_first:
        await played.ends(agent, reason)
    await played.say(JobState.COMPLETED, runner=runner, conclusion=conclusion)
    if not exits_first:
        await played.ends(agent, reason)
    counted = {
        known: played.world.read("jobs_failed_total", sku="gpu", cause=known)
        for known in ("code", "infrastructure")
    }
    assert counted == {known: 1.0 if known == cause else None for known in counted}


@on_virtual_time
async def test_a_job_whose_machine_was_interrupted_failed_for_infrastructure() -> None:
    played = Played()
    agent, runner = await played.starts_job()
    now = played.controller.journal.now
    notice = MachineNoticed(now, EAST, agent.instance.id, NoticeKind.SPOT_INTERRUPTION, now)
    await played.controller.journal.record(notice)
    await asyncio.sleep(120.0)
    played.world.east.shut_down(agent.instance.id)
    await played.controller.machine_lists.list_machines(EAST)
    await asyncio.sleep(480.0)
    await played.say(JobState.COMPLETED, runner=runner, conclusion="failure")
    assert played.world.read("jobs_failed_total", sku="gpu", cause="infrastructure") == 1
    assert played.world.read("machines_terminated_total", sku="gpu", reason="interrupted") == 1
    # The machine ended 120 s after the notice. What GitHub says later costs nothing more.
    spent = played.world.read("machine_seconds_total", sku="gpu", use="job")
    assert spent == near(120.0)


@on_virtual_time
async def test_a_run_waits_while_none_of_its_jobs_runs() -> None:
    played = Played()
    agent, runner = await played.starts_job()  # 65 s of waiting
    await played.say(JobState.QUEUED, job=2)
    await asyncio.sleep(100.0)  # one runs, one waits
    await played.say(JobState.COMPLETED, runner=runner, conclusion="success")
    await asyncio.sleep(40.0)  # the other waits
    await played.say(JobState.COMPLETED, job=2, conclusion="cancelled")
    read = played.world.read
    assert read("workflow_run_seconds_total", state="running") == near(100.0)
    assert read("workflow_run_seconds_total", state="waiting") == near(105.0)
    assert read("workflow_run_duration_seconds_sum") == near(205.0)
    assert read("workflow_run_duration_seconds_count") == 1
    of_one = {"repository": REPOSITORY, "state": "waiting"}
    assert read("repository_workflow_run_seconds_total", **of_one) == near(105.0)
    await played.ends(agent)


@on_virtual_time
async def test_a_restart_continues_to_count_the_machine_at_work() -> None:
    played = Played()
    _, runner = await played.starts_job()
    await played.controller.kill()
    await asyncio.sleep(300.0)
    again = Played(played.world)
    await again.controller.resume()
    await again.say(JobState.COMPLETED, runner=runner, conclusion="success")
    spent = played.world.read("machine_seconds_total", sku="gpu", use="job")
    assert spent == near(300.0)


@on_virtual_time
async def test_machines_and_runners_and_approvals_are_shown_by_state() -> None:
    played = Played()
    await played.starts_job()
    await played.say(JobState.WAITING, job=2)
    await played.controller.turn()
    read = played.world.read
    assert read("runners", sku="gpu", state="busy") == 1
    assert read("machines", sku="gpu", state="assigned") == 1
    assert read("jobs_in_progress", sku="gpu") == 1
    assert read("jobs_awaiting_approval", sku="gpu") == 1
    await played.say(JobState.QUEUED, job=2, read=True)
    await played.controller.turn()
    assert read("jobs_awaiting_approval", sku="gpu") == 0


@on_virtual_time
async def test_offerings_on_hold_are_shown_until_their_hold_ends() -> None:
    played = Played()
    await played.controller.resume()
    error = ProviderError(FailureClass.CAPACITY, "InsufficientInstanceCapacity", "none left")
    played.world.east.launch_script.extend([error] * 20)
    reporter = asyncio.create_task(
        report_offerings_on_hold(
            played.controller.journal, played.world.metrics, played.world.clock
        )
    )
    await played.say(JobState.QUEUED)
    await played.controller.turn(then=20.0)

    def held() -> float:
        return sum(
            played.world.read(
                "offerings_on_hold", provider=EAST, capacity_type=kind, reason="capacity"
            )
            or 0.0
            for kind in ("spot", "on-demand")
        )

    assert held() > 0
    refused = {"provider": EAST, "capacity_type": "on-demand", "reason": "capacity"}
    assert (played.world.read("offerings_refused_total", **refused, zone="") or 0) >= 1
    await played.say(JobState.COMPLETED, conclusion="cancelled")
    await asyncio.sleep(3600.0)
    assert held() == 0
    reporter.cancel()


@on_virtual_time
async def test_the_lag_of_deliveries_and_the_latency_of_the_store_are_observed() -> None:
    played = Played()
    await played.controller.resume()
    await asyncio.sleep(10.0)
    now = played.world.clock.now()
    first = delivery(1, 1, JobState.QUEUED, now)
    await played.controller.intake.accept(first)
    read = played.world.read
    assert read("delivery_lag_seconds_count") == 0, "a job may be queued later than it was created"
    body = first.body.replace(b'"queued"', b'"in_progress"')[:-1]
    late = replace(
        first, id="d-2", body=body + f', "started_at": {now}}}'.encode(), received_at=now + 7.0
    )
    assert await played.controller.intake.accept(late)
    assert not await played.controller.intake.accept(late), "a duplicate is no late delivery"
    assert read("delivery_lag_seconds_sum") == near(7.0)
    assert read("delivery_lag_seconds_count") == 1
    assert read("store_write_duration_seconds_count", operation="accept") == 2
    assert (read("store_write_duration_seconds_sum", operation="accept") or 0) < 1.0
    await played.controller.turn()
    assert (read("store_write_duration_seconds_count", operation="commit") or 0) >= 1


@on_virtual_time
async def test_a_refused_offering_is_counted_in_its_zone_though_another_has_the_machine() -> None:
    played = Played()
    await played.controller.resume()
    offering = next(iter(played.controller.state.offerings.values()))
    refusal = LaunchFailure(FailureClass.CAPACITY, "Insufficient", "none left", offering.key)
    played.world.east.launch_script.append(Partly(1, (refusal,)))
    await played.say(JobState.QUEUED)
    await played.controller.turn()
    place = {"provider": EAST, "capacity_type": offering.capacity_type.value}
    read = played.world.read
    assert read("offerings_refused_total", **place, zone=offering.zone, reason="capacity") == 1
    assert len(played.world.east.running) == 1
    launched = sum(read("machines_launched_total", **place, zone=zone) or 0 for zone in "ab")
    assert launched == 1
