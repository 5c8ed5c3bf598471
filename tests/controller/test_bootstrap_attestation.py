"""Attestation: every reason for which the bootstrap service refuses a machine."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.machines.attestation import (
    ANSWERED_WITHIN,
    AWAITING_AT_ONCE,
    LISTED_WITHIN,
)
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    HealthChecks,
    NotKnownYetError,
)
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import (
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import Agent, launched, listed_at_github, queue, refusal, say
from tests.controller.controllers import HEALTH_CHECK, Controller, World
from tests.controller.fakes_provider import Instance, Lost, proof_of
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

STRANGER = Instance(
    ProviderMachineId("i-stranger"),
    LaunchRequestId("c"),
    SkuName("gpu"),
    "east/g5.xlarge/a/on-demand",
    "t1",
)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("malformed", 401),
        ("signature", 401),
        ("certificate", 401),  # embedded in the document by an attacker, not pinned
        ("expired", 401),
        ("account", 403),
        ("region", 403),
    ],
)
@on_virtual_time
async def test_an_invalid_proof_is_refused(reason: str, status: int) -> None:
    controller, (agent,) = await launched(World())
    assert await refusal(agent.attest(f"refused:{reason}".encode())) == (status, reason)
    assert controller.only_machine().state is MachineState.LAUNCHED


@pytest.mark.parametrize(
    "step",
    [
        OutcomeUnknownError("the API server does not answer"),
        ProviderError(FailureClass.THROTTLED, "TooManyRequests", "later"),
        60.0,
    ],
    ids=["unreachable", "throttled", "hanging"],
)
@on_virtual_time
async def test_a_proof_that_cannot_be_checked_now_is_checked_again(
    step: OutcomeUnknownError | ProviderError | float,
) -> None:
    controller, (agent,) = await launched(World())
    controller.world.east.verify_script.append(step)
    asked_at = controller.world.clock.now()
    with pytest.raises(NotKnownYetError), capture_logs() as logs:
        await agent.attest()
    assert controller.world.clock.now() - asked_at <= ANSWERED_WITHIN
    assert [line["event"] for line in logs] == ["proof_not_checked"]
    assert logs[0]["error"]
    assert controller.only_machine().state is MachineState.LAUNCHED
    await agent.attest()
    assert controller.only_machine().state is MachineState.BOOTED


@on_virtual_time
async def test_a_proof_without_image_and_launch_time_proves_the_machine() -> None:
    """Kubernetes' TokenReview gives only the pod's UID."""
    controller, (agent,) = await launched(World())
    controller.only_machine().placement.launch_time = ""
    await agent.attest(f"signed:{agent.instance.id},,".encode())
    assert controller.only_machine().state is MachineState.BOOTED


@on_virtual_time
async def test_a_provider_that_is_not_configured_is_refused() -> None:
    _, (agent,) = await launched(World())
    assert await refusal(agent.attest(provider="elsewhere")) == (403, "account")


@on_virtual_time
async def test_other_protocol_versions_are_refused() -> None:
    _, (agent,) = await launched(World())
    for version in (0, 2, 99):
        assert await refusal(agent.attest(protocol=version)) == (426, "protocol")


@on_virtual_time
async def test_the_answer_to_an_attestation_has_the_machine_id_and_the_health_checks() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    answer = await controller.bootstrap.attest(
        EAST, proof_of(agent.instance), agent.nonce, 1, "1.0"
    )
    machine = controller.only_machine()
    assert (answer.machine, answer.sku, answer.health_checks) == (machine.id, "gpu", HEALTH_CHECK)
    assert machine.state is MachineState.BOOTED
    own = {"vendor": "nvidia", "count": 1}
    defaults = {(EAST, "g5.xlarge"): own, (EAST, "g5.12xlarge"): {"vendor": "nvidia", "count": 4}}
    controller.bootstrap._health_checks = {machine.sku: HealthChecks(HEALTH_CHECK, defaults)}
    again = await controller.bootstrap.attest(EAST, proof_of(agent.instance), agent.nonce, 1, "1.0")
    assert again.health_checks == {**HEALTH_CHECK, "accelerator": own}
    controller.bootstrap._health_checks = {}
    again = await controller.bootstrap.attest(EAST, proof_of(agent.instance), agent.nonce, 1, "1.0")
    assert again.health_checks == {}
    durable = world.store.machine(machine.id)
    assert durable == machine
    assert durable is not machine


@on_virtual_time
async def test_an_instance_that_the_controller_did_not_launch_is_refused() -> None:
    controller, _ = await launched(World())
    await controller.world.clock.sleep(130.0)
    assert await refusal(Agent(controller, STRANGER).attest()) == (403, "instance")
    assert controller.take_list_requests() == []


@on_virtual_time
async def test_after_a_start_an_unknown_instance_waits_for_a_listing() -> None:
    controller, _ = await launched(World())
    with pytest.raises(NotKnownYetError) as refused:
        await Agent(controller, STRANGER).attest()
    assert refused.value.retry_after > 0
    assert controller.take_list_requests() == [EAST]


@on_virtual_time
async def test_an_unknown_instance_waits_while_a_launch_request_has_no_answer() -> None:
    world = World()
    world.east.launch_script.append(Lost())
    controller = Controller(world)
    await controller.resume()
    await world.clock.sleep(600.0)
    await queue(controller, 1)
    await controller.turn()
    (call,) = controller.state.open_launch_requests.values()
    assert call.state is LaunchRequestState.UNKNOWN
    (instance,) = world.east.running
    agent = Agent(controller, instance)
    with pytest.raises(NotKnownYetError):
        await agent.attest()
    assert controller.take_list_requests() == [EAST]

    # The requested listing binds the instance by its tag, so its next attestation succeeds.
    await controller.machine_lists.list_machines(EAST)
    await agent.make_ready()
    assert controller.only_machine().state is MachineState.READY


@on_virtual_time
async def test_a_stale_launch_time_is_refused() -> None:
    """A reused address or id must not get the assignment of the earlier instance."""
    _, (agent,) = await launched(World())
    assert await refusal(agent.attest(proof_of(agent.instance, launch_time="t0"))) == (
        403,
        "launch_time",
    )


@pytest.mark.case(
    "an identity document's `pendingTime` differs from the listed `LaunchTime`",
    topic="EC2's machines",
    source="EC2: instance identity documents",
)
@pytest.mark.parametrize(
    ("proven", "fits"),
    [
        ("2026-11-22T04:00:00Z", True),
        ("2026-11-22T04:05:00Z", True),
        ("2026-11-22T03:55:00Z", True),
        ("2026-11-22T04:05:01Z", False),
        ("2026-11-22T03:54:59Z", False),
        ("2026-11-22T04:00:01", False),
        ("soon", False),
    ],
)
@on_virtual_time
async def test_the_proven_launch_time_may_differ_by_five_minutes_and_that_is_logged(
    proven: str, fits: bool
) -> None:
    controller, (agent,) = await launched(World())
    controller.only_machine().placement.launch_time = "2026-11-22T04:00:00Z"
    proof = proof_of(agent.instance, launch_time=proven)
    with capture_logs() as logs:
        if fits:
            await agent.attest(proof)
        else:
            assert await refusal(agent.attest(proof)) == (403, "launch_time")
    seconds = [one["proven_later_by_seconds"] for one in logs if "differs" in one["event"]]
    differ = {
        "2026-11-22T04:05:00Z": [300.0],
        "2026-11-22T03:55:00Z": [-300.0],
        "2026-11-22T04:05:01Z": [301.0],
        "2026-11-22T03:54:59Z": [-301.0],
    }
    assert seconds == differ.get(proven, [])


@on_virtual_time
async def test_another_image_than_the_one_launched_is_refused() -> None:
    _, (agent,) = await launched(World())
    assert await refusal(agent.attest(proof_of(agent.instance, image="ami-2"))) == (403, "image")


@on_virtual_time
async def test_a_machine_without_a_known_launch_time_waits_for_a_listing() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    controller.only_machine().placement.launch_time = ""
    with pytest.raises(NotKnownYetError):
        await agent.attest()
    assert controller.take_list_requests() == [EAST]
    await controller.machine_lists.list_machines(EAST)
    await agent.attest()
    assert controller.only_machine().placement.launch_time == agent.instance.launch_time


@on_virtual_time
async def test_an_attestation_is_answered_after_the_listing_that_it_waits_for() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    controller.only_machine().placement.launch_time = ""
    watching = asyncio.create_task(controller.run_tasks())
    await asyncio.sleep(5.0)
    controller.only_machine().placement.launch_time = ""
    began = world.clock.now()
    await agent.attest()
    assert world.clock.now() - began < 1.0
    watching.cancel()
    await asyncio.wait({watching})


@pytest.mark.case(
    "an instance that the fleet did not launch requests list after list",
    topic="Hostile input",
    source="EC2: instance identity documents",
)
@on_virtual_time
async def test_each_instance_waits_for_one_listing_at_a_time() -> None:
    controller, _ = await launched(World())
    stranger = Agent(controller, STRANGER)
    waiting = asyncio.create_task(stranger.attest())
    await asyncio.sleep(0)
    asked = controller.world.clock.now()
    assert controller.take_list_requests() == [EAST]
    for _ in range(3):
        with pytest.raises(NotKnownYetError):
            await stranger.attest()
    assert controller.world.clock.now() == asked
    assert controller.take_list_requests() == []
    with pytest.raises(NotKnownYetError):
        await waiting
    assert controller.world.clock.now() == asked + LISTED_WITHIN
    with pytest.raises(NotKnownYetError):
        await stranger.attest()
    assert controller.take_list_requests() == [EAST], "the first one's end gives its place back"


@pytest.mark.case(
    "an instance that the fleet did not launch requests list after list",
    topic="Hostile input",
    source="EC2: instance identity documents",
)
@on_virtual_time
async def test_beyond_the_limit_of_waiting_attestations_the_next_is_refused_with_retry_after() -> (
    None
):
    controller, (agent,) = await launched(World())
    waiting = [
        asyncio.create_task(
            Agent(controller, replace(STRANGER, id=ProviderMachineId(f"i-{number}"))).attest()
        )
        for number in range(AWAITING_AT_ONCE)
    ]
    await asyncio.sleep(0)
    asked = controller.world.clock.now()
    with pytest.raises(NotKnownYetError) as refused:
        await Agent(controller, STRANGER).attest()
    assert refused.value.retry_after > 0
    assert controller.world.clock.now() == asked
    await agent.attest()  # a known machine does not wait
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {NotKnownYetError}


@on_virtual_time
async def test_the_same_instance_id_at_another_provider_is_another_machine() -> None:
    """Two providers can use the same instance id."""
    world = World()
    controller, (agent,) = await launched(world)
    controller.only_machine().provider = ProviderName("west")
    await world.clock.sleep(130.0)
    assert await refusal(agent.attest()) == (403, "instance")


@on_virtual_time
async def test_a_terminated_machine_is_asked_to_power_off() -> None:
    controller, (agent,) = await launched(World())
    await agent.attest()
    await agent.health_checks(passed=False)
    assert await refusal(agent.attest()) == (410, "ended")
    assert await refusal(agent.poll()) == (410, "ended")
    assert await refusal(agent.health_checks()) == (410, "ended")
    del controller


@on_virtual_time
async def test_the_nonce_of_another_machine_is_refused() -> None:
    controller, (one, other) = await launched(World(), jobs=2)
    await one.make_ready()
    await other.make_ready()
    seen = controller.state.machines[one.machine].work.last_seen
    await controller.world.clock.sleep(60.0)
    bootstrap = controller.bootstrap
    for request in (
        bootstrap.stage(one.machine, other.nonce, "driver"),
        bootstrap.health_checks(one.machine, other.nonce, True, ""),
        bootstrap.poll(one.machine, other.nonce, 1.0),
        bootstrap.acknowledge(one.machine, other.nonce, RunnerName("r")),
        bootstrap.heartbeat(one.machine, other.nonce),
        bootstrap.may_release(one.machine, other.nonce),
        bootstrap.release(one.machine, other.nonce),
        bootstrap.exited(one.machine, other.nonce, "bye"),
    ):
        assert await refusal(request) == (401, "nonce")
    assert controller.state.machines[one.machine].work.last_seen == seen, (
        "a stranger keeps it alive"
    )


@on_virtual_time
async def test_requests_before_the_attestation_are_refused() -> None:
    controller, _ = await launched(World())
    machine = controller.only_machine().id
    assert await refusal(controller.bootstrap.poll(machine, "", 1.0)) == (401, "nonce")
    assert await refusal(controller.bootstrap.poll(MachineId("ffff"), "", 1.0)) == (401, "machine")


@on_virtual_time
async def test_a_second_attestation_before_the_assignment_replaces_the_nonce() -> None:
    controller, (agent,) = await launched(World())
    await agent.make_ready()
    await controller.turn()
    assert controller.only_machine().state is MachineState.ASSIGNED
    again = Agent(controller, agent.instance, "SECRET-NONCE-2")
    await again.attest()
    assert await refusal(agent.poll()) == (401, "nonce")
    await again.health_checks()
    assigned = await again.take_assignment()
    assert assigned.jit_config == controller.world.github.secrets[assigned.runner]


@pytest.mark.case(
    "a job reads the identity document, or repeats its machine's requests",
    topic="Hostile input",
    source="EC2: instance identity documents",
)
@on_virtual_time
async def test_a_second_attestation_after_the_assignment_was_sent_is_refused() -> None:
    """A job can read the identity document, and must not get a second assignment with it."""
    controller, (agent,) = await launched(World())
    await agent.start_runner()
    again = Agent(controller, agent.instance, "SECRET-NONCE-2")
    assert await refusal(again.attest()) == (409, "assigned")
    assert await refusal(agent.poll()) == (409, "second_assignment")


@on_virtual_time
async def test_a_ready_machine_that_attests_again_becomes_ready_after_its_health_checks() -> None:
    controller, (agent,) = await launched(World())
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn()
    await agent.make_ready()
    assert controller.only_machine().state is MachineState.READY
    await agent.attest()
    assert controller.only_machine().state is MachineState.BOOTED
    assert await refusal(agent.poll()) == (409, "not_ready")
    await agent.health_checks()
    assert await agent.poll(wait=1.0) is None


@on_virtual_time
async def test_the_answer_follows_the_commit() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    machine = controller.only_machine().id

    def kept() -> MachineState:
        return world.store.machine(machine).state

    await agent.attest()
    assert kept() is MachineState.BOOTED
    await agent.health_checks()
    assert kept() is MachineState.READY
    await controller.turn()
    assigned = await agent.take_assignment()
    assert isinstance(assigned, Assigned)
    assert world.store.runner(assigned.runner).configuration_sent_at is not None
    await agent.acknowledge(assigned.runner)
    assert world.store.runner(assigned.runner).listening_at is not None
    await agent.exit()
    assert kept() is MachineState.EXITED


@on_virtual_time
async def test_a_lost_request_that_launched_nothing_leaves_an_empty_slot() -> None:
    world = World()
    world.east.launch_script.append(OutcomeUnknownError("reset"))
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.turn()
    assert world.east.running == []
    assert controller.only_machine().state is MachineState.REQUESTED


async def restored(stage: str) -> tuple[Controller, Agent, RunnerName]:
    """Restore a store in which a machine is in `stage`, while the machine runs a job."""
    world = World()
    controller, (agent,) = await launched(world)
    if stage != "launched":
        await agent.attest()
    if stage == "ready":
        await agent.health_checks()
    await world.store.record_heartbeat(world.clock.now())
    backup = world.store.snapshot()
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await world.clock.sleep(3600.0)
    await controller.stop()
    world.store.restore(backup)
    again = Controller(world)
    await again.resume()
    assert again.only_machine().state == stage
    return again, Agent(again, agent.instance, agent.nonce), assigned.runner


STAGES = ["launched", "booted", "ready"]


@pytest.mark.case(
    "a restored store shows a machine as waiting, and the job on it attests to get it registered "
    "again",
    topic="EC2's machines",
    source="EC2: instance identity documents",
)
@pytest.mark.parametrize("own_nonce", [False, True], ids=["made up", "its machine's"])
@pytest.mark.parametrize("stage", STAGES)
@on_virtual_time
async def test_after_a_restore_a_job_cannot_attest_for_its_machine(
    stage: str, own_nonce: bool
) -> None:
    """A job with root can read the machine's proof of identity."""
    controller, agent, at_work = await restored(stage)
    world = controller.world
    job = agent if own_nonce else Agent(controller, agent.instance, "SECRET-NONCE-OF-THE-JOB")
    known = controller.only_machine().nonce_hash
    for _ in range(20):
        with pytest.raises(NotKnownYetError):
            await job.attest()
        await world.clock.sleep(10.0)
    assert controller.take_list_requests() == [], "no provider's list says who works"
    listed_at_github(controller, at_work)
    assert await refusal(job.attest()) == (409, "assigned")
    await queue(controller, 2)
    await controller.turn()
    assert world.github.registered == [at_work]
    assert controller.only_machine(MachineState.ASSIGNED).nonce_hash == known


@pytest.mark.parametrize("queued_first", [False, True], ids=["job after the list", "job before"])
@pytest.mark.parametrize("stage", ["booted", "ready"])
@on_virtual_time
async def test_after_a_restore_a_job_that_polls_gets_no_second_registration(
    stage: str, queued_first: bool
) -> None:
    """A job with root can read the agent's nonce too, and poll like an idle agent."""
    controller, agent, at_work = await restored(stage)
    world = controller.world
    agent.machine = controller.only_machine().id
    await agent.health_checks()
    if queued_first:
        await queue(controller, 2)
    for _ in range(20):
        await controller.turn()
        with pytest.raises(NotKnownYetError):
            await agent.poll(1.0)
        await world.clock.sleep(5.0)
    later = RunnerName(f"{at_work[:-1]}7")  # of a registration that the backup does not have
    listed_at_github(controller, later)
    if not queued_first:
        await queue(controller, 2)
    await controller.turn()
    for _ in range(3):
        assert await refusal(agent.poll(1.0)) == (409, "not_ready")
        await controller.turn()
    machine = controller.only_machine(MachineState.ASSIGNED)
    assert (bool(machine.work.unverified), machine.work.may_run_job, machine.work.runner) == (
        True,
        True,
        None,
    )


@on_virtual_time
async def test_after_a_short_downtime_an_idle_machine_is_assigned_before_any_listing() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    await world.store.record_heartbeat(world.clock.now())
    await controller.stop()
    await world.clock.sleep(60.0)
    again = Controller(world)
    await again.resume()
    agent.controller = again
    polling = asyncio.ensure_future(agent.take_assignment())
    await again.turn()
    await again.turn()
    await polling


@pytest.mark.case(
    "a restored store shows a machine as waiting, and the job on it attests to get it registered "
    "again",
    topic="EC2's machines",
    source="EC2: instance identity documents",
)
@pytest.mark.parametrize("stage", STAGES)
@on_virtual_time
async def test_a_nonce_from_before_the_start_is_never_replaced(stage: str) -> None:
    """GitHub's list may be wrong once, so only the agent's own nonce is accepted."""
    controller, agent, _ = await restored(stage)
    await controller.world.clock.sleep(60.0)
    listed_at_github(controller)
    job = Agent(controller, agent.instance, "SECRET-NONCE-OF-THE-JOB")
    if stage == "launched":
        await job.attest()  # the store has no nonce
        assert await refusal(agent.attest()) == (401, "nonce")
        return
    known = controller.only_machine().nonce_hash
    for _ in range(3):
        assert await refusal(job.attest()) == (401, "nonce")
    await agent.attest()
    assert await refusal(job.attest()) == (401, "nonce")
    assert controller.only_machine().nonce_hash == known


@on_virtual_time
async def test_a_runner_list_begun_too_soon_after_a_start_does_not_allow_attestations() -> None:
    """The newest runner may not have been online yet."""
    controller, agent, _ = await restored("launched")
    await controller.world.clock.sleep(59.0)
    listed_at_github(controller)
    with pytest.raises(NotKnownYetError):
        await agent.attest()
    await controller.world.clock.sleep(1.0)
    listed_at_github(controller)
    await agent.make_ready()
    assert controller.only_machine().state is MachineState.READY
