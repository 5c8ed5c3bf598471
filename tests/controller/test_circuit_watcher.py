"""Why a runner left reaches the operator: log, history, metric and the machine's record."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.machines.circuits import LOOK_EVERY
from autoscaler.controller.ports.operator_requests import OperatorRequestRefusedError, RefusalKind
from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.ledger.failures.circuits import open_circuits
from autoscaler.model.cooldowns import Cooldown, exits_key, launch_option_key
from autoscaler.model.events import ConfigurationReloaded
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import SAID_WITHOUT_A_JOB, ExitReason
from tests.controller.agents import Agent, launched, say
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.test_github_reader import answer
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import ALICE
from tests.planner.fleets import catalogue, sku

REFUSED = (
    "GitHub refuses the runner's version: An error occurred: Runner version v2.320.0 is deprecated "
    "and cannot receive messages."
)


@pytest.mark.case(
    "GitHub refuses the version of a runner: the agent reads it from the listener's last error "
    "line or exit status 7; the log and a metric show it",
    topic="Runner and listener",
    source="actions/runner#3651; actions/runner#2246",
)
@on_virtual_time
async def test_an_operator_reads_why_a_runner_left_without_a_job() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.attest()
    await agent.health_checks(version="2.320.0")
    await controller.turn()
    assigned = await agent.take_assignment()
    await agent.acknowledge(assigned.runner)
    with capture_logs() as logs:
        await agent.exit(REFUSED, ExitReason.VERSION_DEPRECATED)
    (line,) = (one for one in logs if one["event"] == "runner_exited_without_job")
    machine = controller.only_machine()
    assert (line["machine"], line["image"], line["sku"]) == (
        machine.id,
        machine.placement.image,
        "gpu",
    )
    assert (line["runner_version"], line["runner"]) == ("2.320.0", assigned.runner)
    assert (line["reason"], line["detail"]) == ("version_deprecated", REFUSED)
    assert ("runner_exited", "gpu", "version_deprecated") in world.telemetry.said
    rows = await world.store.history("machine", machine.id)
    assert [row.detail for row in rows if row.event == "exited"] == [REFUSED]
    assert (machine.progress.runner_version, machine.work.exit_reason) == (
        "2.320.0",
        "version_deprecated",
    )


@pytest.mark.case(
    "a job with root reports that GitHub refuses its runner's version",
    topic="Hostile input",
    source="GitHub: secure use",
)
@pytest.mark.parametrize("reason", sorted(SAID_WITHOUT_A_JOB))
@on_virtual_time
async def test_a_reason_that_a_job_reports_counts_for_nothing_beyond_its_machine(
    reason: ExitReason,
) -> None:
    world = World()
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    with capture_logs() as logs:
        await agent.exit("a job says so", reason)
        await controller.turn()
    said = [one for one in world.telemetry.said if one[0] == "runner_exited"]
    assert said == [("runner_exited", "gpu", "exited")]
    assert not [
        one for one in logs if one["event"] in ("circuit_opened", "runner_exited_without_job")
    ]
    assert world.telemetry.counts.circuits_open == ()


@pytest.mark.parametrize("why", ["unused", "ended", "after a job"])
@on_virtual_time
async def test_expected_runner_exits_are_counted_and_not_logged(why: str) -> None:
    world = World()
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    if why == "after a job":
        await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
        await controller.turn()
    reason = ExitReason.EXITED if why == "after a job" else ExitReason(why)
    with capture_logs() as logs:
        await agent.exit("it left", reason)
    assert not [one for one in logs if one["event"] == "runner_exited_without_job"]
    assert ("runner_exited", "gpu", reason) in world.telemetry.said


@pytest.mark.case(
    "a listener retries its connection for ever, as behind a proxy that replaces GitHub's "
    "certificate: the exit is logged with the error and counts against the SKU",
    topic="Runner and listener",
    source="actions/runner BrokerMessageListener.cs",
)
@on_virtual_time
async def test_runners_that_cannot_connect_are_logged_and_open_the_breaker() -> None:
    """For example behind a proxy that replaces GitHub's certificate. Each machine releases its registration."""
    world = World()
    controller, agents = await launched(world, 3)
    with capture_logs() as logs:
        for agent in agents:
            await agent.start_runner()
            await world.clock.sleep(120.0)
            assert await controller.bootstrap.release(agent.machine, agent.nonce) == 204
            await agent.exit("no job came: SSL connection", ExitReason.NOT_CONNECTED)
    lines = [one for one in logs if one["event"] == "runner_exited_without_job"]
    assert [one["reason"] for one in lines] == ["not_connected"] * 3
    assert [one["sku"] for one in logs if one["event"] == "circuit_opened"] == ["gpu"]


async def refused(world: World, jobs: int = 4) -> tuple[Controller, list[Agent]]:
    """GitHub refuses the first two runners of a burst. Others of the image have not connected yet."""
    controller, agents = await launched(world, jobs)
    for job in range(1, jobs + 1):
        world.github.show(answer(world, job, JobState.QUEUED))
    await refuse(controller, *agents[:2])
    return controller, agents


async def world_settles(controller: Controller) -> None:
    """Apply GitHub's answers about the jobs, and carry out the next plan."""
    for _ in range(3):
        await asyncio.sleep(1.0)
        await controller.turn()


async def refuse(controller: Controller, *agents: Agent) -> None:
    for agent in agents:
        await agent.attest()
        await agent.health_checks(version="2.320.0")
        await controller.turn()
        assigned = await agent.take_assignment()
        await agent.acknowledge(assigned.runner)
    for agent in agents:
        await agent.exit(REFUSED, ExitReason.VERSION_DEPRECATED)
    await controller.turn()
    await world_settles(controller)


@on_virtual_time
async def test_the_second_refusal_opens_the_breaker_and_names_image_and_version() -> None:
    world = World()
    controller, agents = await launched(world, 2)
    with capture_logs() as logs:
        await refuse(controller, *agents)
    (line,) = (one for one in logs if one["event"] == "circuit_opened")
    assert (line["sku"], line["code"]) == ("gpu", "circuit_open")
    assert line["reason"].startswith(
        f"GitHub refuses actions/runner 2.320.0 in image {world.east.image_id}: {REFUSED[:60]}"
    )
    assert len(world.east.sent) == 1
    assert world.telemetry.counts.circuits_open == ("gpu",)


@pytest.mark.case(
    "GitHub refuses the version of a runner: the SKU's circuit breaker opens with the second, with image "
    "and version, until the image is replaced or an operator closes it",
    topic="Runner and listener",
    source="actions/runner#1991",
)
@on_virtual_time
async def test_four_jobs_cost_four_machines_until_the_image_is_replaced() -> None:
    """Before the circuit breaker, thirteen machines were launched for four jobs."""
    world = World()
    controller, agents = await refused(world)
    circuits = controller.parts.circuit_watcher
    watching = asyncio.ensure_future(circuits.run())
    for agent in agents[2:]:
        await refuse(controller, agent)
    await world.clock.sleep(100.0)
    await controller.turn()
    assert len(world.east.instances) == 4
    world.east.image_id = "ami-newer"
    with capture_logs() as logs:
        await world.clock.sleep(LOOK_EVERY + 2.0)
    assert [one["reason"] for one in logs if one["event"] == "circuit_closed"] == [
        "image ami-newer in place of ami-1"
    ]
    await world_settles(controller)
    assert len(world.east.instances) == 8
    assert {order.refused_image for order in world.east.prepared[-1:]} == {"ami-1"}
    watching.cancel()


@pytest.mark.parametrize("trouble", [None, OutcomeUnknownError("reset")])
@on_virtual_time
async def test_while_the_image_is_the_same_or_not_known_the_breaker_stays_open(
    trouble: OutcomeUnknownError | None,
) -> None:
    world = World()
    controller, _ = await refused(world, jobs=2)
    world.east.image_script.append(trouble)
    if trouble is not None:
        world.east.image_id = "ami-newer"
    with capture_logs() as logs:
        await controller.parts.circuit_watcher.check()
    said = [(one["event"], one["sku"], one["provider"], one["error"]) for one in logs]
    assert said == ([("image_not_read", "gpu", "east", "reset")] if trouble else [])
    await controller.turn()
    assert world.east.images_read == ["gpu"]
    assert len(world.east.sent) == 1


@on_virtual_time
async def test_a_reload_removes_a_sku_while_images_are_read() -> None:
    """The watcher must survive: its failure would end the controller."""
    world = World(catalogue(sku("cpu"), sku()))
    controller, _ = await refused(world, jobs=2)
    (row,) = open_circuits(controller.state, SkuName("gpu"))
    controller.state.set_cooldown(replace(row, key=exits_key(SkuName("cpu"))))
    world.east.latency = 5.0
    checking = asyncio.ensure_future(controller.parts.circuit_watcher.check())
    await asyncio.sleep(1.0)
    reconfiguration = controller.parts.reconfiguration
    await reconfiguration.change_catalogue(catalogue(sku("cpu")), ALICE, ("skus.gpu",))
    await checking
    assert world.east.images_read == ["cpu"]


@on_virtual_time
async def test_no_image_is_read_while_no_breaker_is_open() -> None:
    world = World()
    controller, _ = await launched(world)
    await controller.parts.circuit_watcher.check()
    assert world.east.images_read == []


@pytest.mark.case(
    "GitHub refuses the version of a runner: the SKU's circuit breaker opens with the second, with image "
    "and version, until the image is replaced or an operator closes it",
    topic="Runner and listener",
    source="actions/runner#1991",
)
@on_virtual_time
async def test_an_operator_closes_the_breaker() -> None:
    world = World()
    controller, _ = await refused(world, jobs=2)
    holds = controller.parts.operator_holds
    assert len(world.east.sent) == 1
    assert (await holds.retry("gpu", by=ALICE)).done.startswith("1 hold of sku/gpu ended: GitHub")
    await world_settles(controller)
    assert len(world.east.sent) == 2
    rows = await world.store.history("sku", "gpu")
    assert [(row.event, row.detail) for row in rows] == [("retried", "by alice")]
    with pytest.raises(OperatorRequestRefusedError) as refusal:
        await holds.retry("cpu", by=ALICE)
    assert refusal.value.kind is RefusalKind.UNKNOWN


@on_virtual_time
async def test_an_operator_closes_the_breaker_of_a_launch_option() -> None:
    world = World()
    controller, _ = await launched(world)
    key = launch_option_key(SkuName("gpu"), 0)
    controller.state.set_cooldown(Cooldown(key, controller.journal.now, 3, "no gpu"))
    assert [row.key for row in open_circuits(controller.state, SkuName("gpu"))] == [key]
    outcome = await controller.parts.operator_holds.retry("gpu", by=ALICE)
    assert outcome.done == "1 hold of sku/gpu ended: no gpu"
    assert open_circuits(controller.state, SkuName("gpu")) == []


@pytest.mark.parametrize("replaced", [False, True])
@on_virtual_time
async def test_a_probe_follows_at_once_if_the_image_of_machines_that_failed_is_replaced(
    replaced: bool,
) -> None:
    world = World()
    controller, _ = await launched(world)
    key = launch_option_key(SkuName("gpu"), 0)
    held = Cooldown(key, controller.journal.now + 900.0, 6, "no gpu", FailureClass.HEALTH_CHECK)
    controller.state.set_cooldown(held)
    watching = asyncio.ensure_future(controller.parts.circuit_watcher.run())
    await world.clock.sleep(5.0)
    world.east.image_id = "ami-newer" if replaced else world.east.image_id
    with capture_logs() as logs:
        await world.clock.sleep(LOOK_EVERY)
    row = controller.state.cooldowns[key]
    assert (row.until <= controller.journal.now, row.failures) == (replaced, 6)
    reasons = [one["reason"] for one in logs if one["event"] == "image_replaced"]
    assert reasons == ["image ami-newer in place of ami-1"] * replaced
    await cancelled(watching)


@on_virtual_time
async def test_a_probe_follows_at_once_after_the_configuration_changed() -> None:
    controller, _ = await launched(World())
    key, now = launch_option_key(SkuName("gpu"), 0), controller.journal.now
    for changed in ((), ("providers.east.ec2.subnets",)):
        controller.state.set_cooldown(Cooldown(key, now + 900.0, 6, "no gpu"))
        await controller.journal.record(ConfigurationReloaded(now, ALICE, changed))
        row = controller.state.cooldowns[key]
        assert (row.until, row.failures) == (now if changed else now + 900.0, 6)
