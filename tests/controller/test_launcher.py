"""Launch requests: stored before they are sent, and the effect of each kind of answer."""

import json

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.ledger.failures.failure_counts import BACKOFFS
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.cooldowns import capacity_type_key
from autoscaler.model.events import LaunchFailure
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import queue, say
from tests.controller.controllers import Controller, World
from tests.controller.fakes_provider import Lost, Partly
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST


async def controller_with_jobs(world: World, jobs: int) -> Controller:
    controller = Controller(world)
    await controller.resume()
    for job in range(1, jobs + 1):
        await queue(controller, job)
    return controller


def states(controller: Controller) -> list[MachineState]:
    return sorted(m.state for m in controller.state.machines.values())


def only_call(controller: Controller) -> LaunchRequest:
    (call,) = controller.state.launch_requests.values()
    return call


@on_virtual_time
async def test_the_exact_request_is_stored_before_it_is_sent() -> None:
    world = World()
    stored: list[str] = []

    def look(request: str) -> None:
        (call,) = (c for c in world.store.of_kind(LaunchRequest) if c.body == request)
        assert call.state is LaunchRequestState.SENT
        assert len(call.slots) == json.loads(request)["count"]
        stored.append(request)

    world.east.on_launch = look
    controller = await controller_with_jobs(world, 3)
    await controller.turn()
    assert stored == [sent.request for sent in world.east.sent]
    assert world.telemetry.said.count(("launches", "gpu", EAST)) == 3
    assert controller.crashes == []
    assert only_call(controller).state is LaunchRequestState.SETTLED
    assert states(controller) == [MachineState.LAUNCHED] * 3


@on_virtual_time
async def test_a_partial_answer_fills_slots_and_fails_the_rest() -> None:
    world = World()
    failure = LaunchFailure(
        FailureClass.CAPACITY,
        "InsufficientInstanceCapacity",
        "none left",
        "east/g5.xlarge/a/on-demand",
    )
    world.east.launch_script.append(Partly(2, (failure,)))
    controller = await controller_with_jobs(world, 3)
    await controller.turn()
    assert states(controller) == [MachineState.FAILED, MachineState.LAUNCHED, MachineState.LAUNCHED]
    # The next launch request asks for the missing machine in another offering.
    await controller.turn()
    again = json.loads(world.east.sent[-1].request)
    assert (again["count"], again["offerings"]) == (1, ["east/g5.xlarge/b/on-demand"])
    assert again["token"] != json.loads(world.east.sent[0].request)["token"]


@pytest.mark.parametrize(
    "failure", [f for f in FailureClass if f not in ("boot_deadline", "health_check")]
)
@on_virtual_time
async def test_a_refusal_of_any_class_fails_the_slots_and_causes_a_hold(
    failure: FailureClass,
) -> None:
    world = World()
    world.east.launch_script.append(ProviderError(failure, "Code", "why", retry_after=45.0))
    controller = await controller_with_jobs(world, 2)
    await controller.turn()
    assert only_call(controller).state is LaunchRequestState.SETTLED
    assert only_call(controller).failure is failure
    assert states(controller) == [MachineState.FAILED] * 2
    assert {m.failure for m in controller.state.machines.values()} == {failure}
    assert ("launch_failures", "gpu", failure) in world.telemetry.said
    await controller.turn()
    assert len(world.east.sent) == 1, "held back"
    (waits,) = controller.loop.plan.waiting.values()
    assert "Code: why" in waits[0].message
    await world.clock.sleep(max(3600.0, BACKOFFS[failure].first))
    await controller.turn()
    assert len(world.east.sent) == 2
    assert len(world.east.running) == 2


@on_virtual_time
async def test_a_refusal_holds_back_what_the_provider_says_that_it_concerns() -> None:
    """A limit of the whole account: another launch option of the provider would fail, too."""
    world = World()
    limit = ProviderError(
        FailureClass.QUOTA, "PendingVerification", "wait", scope=FailureScope.PROVIDER
    )
    world.east.launch_script.append(limit)
    controller = await controller_with_jobs(world, 1)
    await controller.turn()
    assert set(controller.state.cooldowns) == {
        capacity_type_key(EAST, kind) for kind in CapacityType
    }


@pytest.mark.parametrize("error", ["refused", "unknown"])
@on_virtual_time
async def test_a_launch_request_that_cannot_be_prepared_is_never_sent(error: str) -> None:
    world = World()
    world.east.prepare_script.append(
        ProviderError(FailureClass.CONFIGURATION, "NoImage", "no image fits")
        if error == "refused"
        else OutcomeUnknownError("time-out")
    )
    controller = await controller_with_jobs(world, 1)
    await controller.turn()
    assert world.east.sent == []
    assert only_call(controller).state is LaunchRequestState.SETTLED
    assert states(controller) == [MachineState.FAILED]
    (machine,) = controller.state.machines.values()
    assert machine.reason == (
        "NoImage: no image fits" if error == "refused" else "PrepareFailed: time-out"
    )
    await world.clock.sleep(120.0)
    await controller.turn()
    assert len(world.east.running) == 1


@pytest.mark.case(
    "CreateFleet's answer is lost, and a newer image appears: the repeated request is identical "
    "and launches nothing twice",
    topic="EC2's API",
    source="EC2: idempotency",
)
@on_virtual_time
async def test_a_launch_request_with_an_unknown_outcome_is_repeated_unchanged_and_launches_once() -> (
    None
):
    world = World()
    world.east.launch_script.extend([Lost(), Lost()])
    controller = await controller_with_jobs(world, 2)
    await controller.turn()
    assert only_call(controller).state is LaunchRequestState.UNKNOWN
    rows = await world.store.history("launch_request", only_call(controller).id)
    assert rows[-1].detail == "the connection broke"
    await world.clock.sleep(6.0)
    await controller.turn()
    await world.clock.sleep(11.0)
    await controller.turn()
    assert len({sent.request for sent in world.east.sent}) == 1
    assert len(world.east.sent) == 3
    assert len(world.east.running) == 2
    assert states(controller) == [MachineState.LAUNCHED] * 2
    assert world.east.violations == []


@pytest.mark.case(
    "an answer is lost, and a list shows the machines by their tag",
    topic="EC2's API",
    source="EC2: CreateFleet",
)
@on_virtual_time
async def test_machines_of_a_lost_answer_are_found_in_a_listing_by_their_tag() -> None:
    world = World()
    world.east.launch_script.append(Lost())
    controller = await controller_with_jobs(world, 2)
    await controller.turn()
    await controller.machine_lists.list_machines(EAST)
    assert states(controller) == [MachineState.LAUNCHED] * 2
    assert {m.placement.provider_id for m in controller.state.machines.values()} == set(
        world.east.instances
    )


@on_virtual_time
async def test_a_refused_repeat_does_not_settle_the_first_request() -> None:
    world = World()
    world.east.launch_script.extend(
        [Lost(), ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")]
    )
    controller = await controller_with_jobs(world, 1)
    await controller.turn()
    await world.clock.sleep(6.0)
    await controller.turn()
    assert only_call(controller).state is LaunchRequestState.UNKNOWN
    assert states(controller) == [MachineState.REQUESTED]


@pytest.mark.parametrize(
    "answer",
    [
        OutcomeUnknownError("503", retry_after=90.0),
        ProviderError(FailureClass.THROTTLED, "TooManyRequests", "later", retry_after=90.0),
        Partly(
            1,
            (LaunchFailure(FailureClass.THROTTLED, "TooManyRequests", "later"),),
            retry_after=90.0,
        ),
    ],
    ids=["unknown", "refused", "partly refused"],
)
@pytest.mark.parametrize("repeated", [False, True])
@on_virtual_time
async def test_no_launch_request_is_sent_before_the_time_that_the_provider_named(
    answer: ProviderError | OutcomeUnknownError | Partly, repeated: bool
) -> None:
    world = World()
    world.east.launch_script.extend([*([OutcomeUnknownError("reset")] * repeated), answer])
    controller = await controller_with_jobs(world, 2)
    while world.east.launch_script:
        await controller.turn()
    refused_at = world.east.sent[-1].at
    while world.clock.now() < refused_at + 200.0:
        await controller.turn()
    assert world.east.sent[1 + repeated].at >= refused_at + 90.0
    assert len(world.east.running) == 2


B_ZONE = "east/g5.xlarge/b/on-demand"


@on_virtual_time
async def test_a_refusal_that_names_an_offering_puts_only_that_on_hold() -> None:
    world = World()
    refused = ProviderError(FailureClass.UNSUPPORTED, "Unsupported", "not here", offering=B_ZONE)
    world.east.launch_script.append(refused)
    controller = await controller_with_jobs(world, 1)
    await controller.turn()
    assert states(controller) == [MachineState.FAILED]
    await controller.turn()
    again = json.loads(world.east.sent[-1].request)
    assert again["offerings"] == ["east/g5.xlarge/a/on-demand"]
    assert len(world.east.running) == 1


@pytest.mark.case(
    "an answer is lost and nothing was launched",
    topic="EC2's API",
    source="EC2: idempotency",
)
@on_virtual_time
async def test_slots_are_written_off_after_a_repeat_and_two_complete_listings() -> None:
    world = World()
    world.east.launch_script.extend([OutcomeUnknownError("reset")] * 2)
    controller = await controller_with_jobs(world, 1)
    await controller.turn()
    # Listings before the repeat prove nothing: the request may still arrive at the provider.
    await controller.machine_lists.list_machines(EAST)
    await world.clock.sleep(6.0)
    await controller.turn()
    await controller.machine_lists.list_machines(EAST)
    assert states(controller) == [MachineState.REQUESTED]
    world.east.list_script.append(OutcomeUnknownError("half a list"))
    await world.clock.sleep(2.0)
    assert await controller.machine_lists.list_machines(EAST) is False
    await world.clock.sleep(61.0)
    assert await controller.machine_lists.list_machines(EAST) is True
    assert states(controller) == [MachineState.FAILED]
    assert only_call(controller).state is LaunchRequestState.SETTLED
    # The job still waits, so there is a new launch request with a new token.
    await world.clock.sleep(60.0)
    await controller.turn()
    assert len({json.loads(s.request)["token"] for s in world.east.sent}) == 2
    assert len(world.east.running) == 1


@pytest.mark.case(
    "AWS's pages differ in how long EC2 remembers a token: the controller repeats a request for "
    "ten minutes only",
    topic="EC2's API",
    source="EC2: idempotency",
)
@on_virtual_time
async def test_a_launch_request_is_not_repeated_after_ten_minutes() -> None:
    world = World()
    world.east.launch_script.extend([OutcomeUnknownError("reset")] * 100)
    controller = await controller_with_jobs(world, 1)
    for _ in range(200):
        await controller.turn()
    first = json.loads(world.east.sent[0].request)["token"]
    tries = [s.at for s in world.east.sent if json.loads(s.request)["token"] == first]
    assert len(tries) > 5
    assert tries[-1] - tries[0] <= 600.0


@on_virtual_time
async def test_a_launch_request_cancelled_while_it_is_prepared_is_never_sent() -> None:
    world = World()
    world.east.latency = 5.0
    controller = await controller_with_jobs(world, 1)
    await controller.turn(then=1.0)
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn(then=60.0)
    assert len(world.east.prepared) == 1
    assert world.east.sent == []
    assert states(controller) == [MachineState.FAILED]
    assert only_call(controller).state is LaunchRequestState.SETTLED
    assert controller.crashes == []


@on_virtual_time
async def test_a_launch_request_that_is_needed_only_in_part_is_replaced_by_a_smaller_one() -> None:
    world = World()
    world.east.latency = 5.0
    controller = await controller_with_jobs(world, 3)
    await controller.turn(then=1.0)
    await say(controller, 2, JobState.COMPLETED)
    await controller.turn(then=60.0)
    assert [json.loads(sent.request)["count"] for sent in world.east.sent] == [2]
    assert len(world.east.running) == 2


@on_virtual_time
async def test_an_answer_after_a_listing_bound_its_machines_changes_nothing() -> None:
    world = World()
    world.east.latency = 5.0
    controller = await controller_with_jobs(world, 2)
    await controller.turn(then=6.0)
    assert len(world.east.running) == 2
    assert only_call(controller).state is LaunchRequestState.SENT
    world.east.latency = 0.1
    await controller.machine_lists.list_machines(EAST)
    bound = {m.id: m.placement.provider_id for m in controller.state.machines.values()}
    await world.clock.sleep(10.0)
    assert {m.id: m.placement.provider_id for m in controller.state.machines.values()} == bound
    assert only_call(controller).state is LaunchRequestState.SETTLED
    assert len(set(bound.values())) == 2
