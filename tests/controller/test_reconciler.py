"""The tasks beside the loop: listings, failed deliveries and the heartbeat, each independent of the others."""

import asyncio

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.intake.redelivery import REDELIVER_EVERY, REDELIVERY_WINDOW
from autoscaler.controller.machines.listing import LISTED_AT_ONCE
from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.retention import ROWS_KEPT_FOR
from autoscaler.model.events import Event, MachinesListed
from autoscaler.model.identifiers import (
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import launched
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.fakes_provider import FakeProvider, Instance
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import listed
from tests.planner.fleets import EAST

WEST = ProviderName("west")
BROKEN = ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")


async def watch(controller: Controller, seconds: float) -> None:
    """Run these tasks for some seconds."""
    task = asyncio.create_task(controller.run_tasks())
    await asyncio.sleep(seconds)
    if task.done():
        await task
    await cancelled(task)


async def controller_of(world: World) -> Controller:
    controller = Controller(world)
    await controller.resume()
    return controller


def stranger(world: World, installation: str, call: str = "unknown") -> Instance:
    instance = Instance(
        ProviderMachineId(f"i-{installation}"),
        LaunchRequestId(call),
        SkuName("gpu"),
        "east/g5.xlarge/a/on-demand",
        "t0",
        installation,
    )
    world.east.add(instance)
    return instance


@pytest.mark.case(
    "absence in one list does not prove that a machine is gone",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
@on_virtual_time
async def test_an_incomplete_listing_adds_machines_and_removes_none() -> None:
    world = World()
    controller, agents = await launched(world, 3)
    gone = agents[2].instance
    del world.east.instances[gone.id]
    for _ in range(10):
        world.east.list_script.append(BROKEN)
        assert await controller.machine_lists.list_machines(EAST) is False
        await world.clock.sleep(60.0)
    assert {m.state for m in controller.state.machines.values()} == {MachineState.LAUNCHED}
    world.east.shut_down(agents[0].instance.id)
    world.east.list_script.append(OutcomeUnknownError("time-out"))
    assert await controller.machine_lists.list_machines(EAST) is False
    states = sorted(m.state for m in controller.state.machines.values())
    assert states == [MachineState.LAUNCHED, MachineState.LAUNCHED, MachineState.TERMINATED]


@on_virtual_time
async def test_a_machine_is_lost_after_two_complete_listings_a_minute_apart_without_it() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    del world.east.instances[agent.instance.id]
    (machine,) = controller.state.machines.values()
    for pause in (0.0, 30.0, 25.0):
        await world.clock.sleep(pause)
        assert await controller.machine_lists.list_machines(EAST)
        assert machine.state is MachineState.LAUNCHED
    await world.clock.sleep(10.0)
    assert await controller.machine_lists.list_machines(EAST)
    assert machine.state is MachineState.LOST


@on_virtual_time
async def test_machines_behind_an_empty_page_are_seen() -> None:
    """EC2 may return an empty page with a token: ending the listing there would lose machines."""
    world = World()
    controller, agents = await launched(world, 5)
    world.east.gaps = True
    for _ in range(3):
        assert await controller.machine_lists.list_machines(EAST)
        await world.clock.sleep(61.0)
    assert {m.state for m in controller.state.machines.values()} == {MachineState.LAUNCHED}
    world.east.shut_down(agents[-1].instance.id)
    assert await controller.machine_lists.list_machines(EAST)
    assert (
        sorted(m.state for m in controller.state.machines.values())[-1] is MachineState.TERMINATED
    )


@pytest.mark.case(
    "one error drops a whole batch",
    topic="Complaints about other fleets",
    source="GAR#5105",
)
@on_virtual_time
async def test_a_failing_provider_does_not_stop_the_listings_of_others() -> None:
    world = World(providers={EAST: FakeProvider(), WEST: FakeProvider(WEST)})
    world.providers[WEST].list_script.extend([BROKEN] * 1000)
    controller = await controller_of(world)
    await watch(controller, 301.0)
    assert world.east.lists == 10
    assert world.providers[WEST].lists == 10
    assert world.store.heartbeat is not None


@on_virtual_time
async def test_a_listing_waits_as_long_as_the_provider_asked_for() -> None:
    world = World()
    controller = await controller_of(world)
    world.east.list_script.append(OutcomeUnknownError("503", retry_after=20.0))
    task = asyncio.create_task(controller.run_tasks())
    await asyncio.sleep(1.0)
    asked = world.clock.now()
    await controller.machine_lists.list_now(EAST, 60.0)
    assert world.clock.now() - asked > 18.0
    assert world.east.lists == 2
    await cancelled(task)


@on_virtual_time
async def test_a_requested_listing_is_read_within_seconds() -> None:
    world = World()
    controller = await controller_of(world)
    task = asyncio.create_task(controller.run_tasks())
    await asyncio.sleep(10.0)
    assert world.east.lists == 1
    asked = world.clock.now()
    await asyncio.gather(*(controller.machine_lists.list_now(EAST, 60.0) for _ in range(5)))
    await controller.machine_lists.list_now(ProviderName("of another configuration"), 60.0)
    assert world.clock.now() - asked < 3.0
    assert world.east.lists == 2
    await controller.machine_lists.list_now(EAST, 0.5)
    assert world.east.lists == 2, "not at once after the last one"
    await cancelled(task)


@pytest.mark.case(
    "another installation's machines count in the limits and are never touched",
    topic="EC2's machines",
    source="Karpenter: tags",
)
@on_virtual_time
async def test_machines_of_another_installation_are_counted_and_not_terminated() -> None:
    world = World()
    theirs = stranger(world, "11111111")
    controller = await controller_of(world)
    await controller.machine_lists.list_machines(EAST)
    await controller.turn()
    assert world.telemetry.counts.machines_foreign == 1
    assert world.telemetry.counts.dollars_per_hour == 1.0
    assert controller.state.machines == {}
    for _ in range(10):
        await world.clock.sleep(3600.0)
        await controller.machine_lists.list_machines(EAST)
        await controller.turn()
    assert world.east.ended == []
    assert world.east.running == [theirs]


@pytest.mark.case(
    "a machine of a launch request that is not in the store (a restored backup) is kept: a job may run on it",
    topic="EC2's machines",
    source="SQLite: backup",
)
@on_virtual_time
async def test_a_machine_of_an_unknown_launch_request_is_kept_as_unverified() -> None:
    world = World()
    stranger(world, "0badcafe")
    controller = await controller_of(world)
    await controller.machine_lists.list_machines(EAST)
    for _ in range(20):
        await world.clock.sleep(1800.0)
        await controller.turn()
    machine = controller.only_machine()
    assert (machine.state, bool(machine.work.unverified)) == (MachineState.ASSIGNED, True)
    assert world.east.ended == []


@on_virtual_time
async def test_a_machine_beyond_the_slots_of_its_launch_request_is_terminated() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    extra = stranger(world, "0badcafe", agent.instance.call)
    await controller.machine_lists.list_machines(EAST)
    await controller.turn()
    assert world.east.ended == [(extra.id,)]
    assert world.east.running == [agent.instance]


@on_virtual_time
async def test_failed_deliveries_are_searched_from_the_time_until_which_all_had_arrived() -> None:
    world = World()
    now = world.clock.now()
    world.store.heartbeat, world.store.arrived_until = now - 60.0, now - 7200.0
    controller = await controller_of(world)
    await watch(controller, 50.0)
    first, *later = world.github.since
    assert first == now - 7200.0
    assert len(later) == 2
    assert later[0] == pytest.approx(now, abs=1.0)
    assert controller.redelivery.github_answered
    assert world.store.arrived_until == pytest.approx(now + 30.0, abs=11.0)


@on_virtual_time
async def test_a_missing_delivery_is_still_searched_for_after_a_restart() -> None:
    world = World()
    now = world.clock.now()
    world.github.redelivered = 1  # and it never arrives
    world.store.arrived_until = now - 7200.0
    controller = await controller_of(world)
    await watch(controller, 90.0)
    await controller.kill()
    successor = await controller_of(world)
    await watch(successor, 1.0)
    assert world.store.heartbeat == pytest.approx(world.clock.now(), abs=11.0)
    assert world.github.since[-1] <= now - 7200.0


@pytest.mark.case(
    "GitHub redelivers for three days only",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@on_virtual_time
async def test_deliveries_too_old_for_redelivery_are_not_searched() -> None:
    world = World()
    world.store.arrived_until = world.clock.now() - 10 * 86400.0
    controller = await controller_of(world)
    await watch(controller, 1.0)
    assert world.github.since == [pytest.approx(world.clock.now() - REDELIVERY_WINDOW, abs=2.0)]


@pytest.mark.case(
    "the clock was ahead before a restart: deliveries that failed meanwhile are still found",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@on_virtual_time
async def test_after_a_clock_that_was_ahead_all_deliveries_are_searched() -> None:
    """Otherwise deliveries that failed before now and after the stored time would never be found."""
    world = World()
    now = world.clock.now()
    world.store.arrived_until = now + 3600.0
    controller = await controller_of(world)
    await watch(controller, 30.0)
    assert world.github.since == [
        pytest.approx(now - REDELIVERY_WINDOW, abs=1.0),
        pytest.approx(now, abs=1.0),
    ]
    assert world.store.arrived_until is not None
    assert world.store.arrived_until <= now + 30.0


@on_virtual_time
async def test_githubs_limit_of_three_days_counts_from_the_present_time() -> None:
    world = World()
    world.store.arrived_until = world.clock.now() - 10 * 86400.0
    world.github.script("redeliver_failed", RetryLaterError("429", 3600.0))
    controller = await controller_of(world)
    await watch(controller, 3601.0)
    first, second = world.github.since
    assert second - first == pytest.approx(3600.0, abs=1.0)


@pytest.mark.case(
    "failing deliveries of one App do not affect another App",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@on_virtual_time
async def test_while_one_of_several_apps_fails_the_search_starts_at_the_same_time() -> None:
    """GitHub then returns the time of the request: the search must not start earlier each time."""
    world = World()
    world.store.arrived_until = began_at = world.clock.now() - 7200.0
    world.github.redelivered = 1
    controller = await controller_of(world)
    await watch(controller, 10 * REDELIVER_EVERY)
    assert world.github.since == [began_at] * 10
    assert world.store.arrived_until == began_at


@pytest.mark.parametrize(
    ("error", "pause"), [(RetryLaterError("429", 300.0), 300.0), (OperatorError("401"), 60.0)]
)
@on_virtual_time
async def test_after_an_error_of_github_the_search_for_deliveries_repeats_the_same_time(
    error: GitHubError, pause: float
) -> None:
    world = World()
    world.github.script("redeliver_failed", error)
    controller = await controller_of(world)
    await watch(controller, pause - 5.0)
    assert len(world.github.since) == 1
    assert not controller.redelivery.github_answered

    world = World()
    world.github.script("redeliver_failed", error)
    controller = await controller_of(world)
    with capture_logs() as logs:
        await watch(controller, pause + 5.0)
    assert [line for line in logs if line["event"] == "redelivery_failed"] == [], (
        "GitHub's client has logged it"
    )
    assert len(world.github.since) == 2
    assert world.github.since[0] == world.github.since[1]
    assert controller.redelivery.github_answered
    assert world.east.lists >= 2, "lists go on"


@on_virtual_time
async def test_the_heartbeat_is_stored_and_old_rows_are_pruned() -> None:
    world = World()
    controller = await controller_of(world)
    await watch(controller, 3605.0)
    assert world.store.heartbeat == pytest.approx(world.clock.now(), abs=11.0)
    assert [world.clock.now() - at for at in world.store.forgotten] == [
        pytest.approx(ROWS_KEPT_FOR + 3605.0, abs=1.0),
        pytest.approx(ROWS_KEPT_FOR + 5.0, abs=1.0),
    ]


@on_virtual_time
async def test_a_store_error_ends_the_tasks() -> None:
    world = World()
    controller = await controller_of(world)
    world.store.failure = StoreError("disk full")
    with pytest.raises(BaseExceptionGroup) as ended:
        await watch(controller, 60.0)
    assert ended.group_contains(StoreError)


@on_virtual_time
async def test_a_long_listing_is_applied_in_pieces_and_other_tasks_run_in_between() -> None:
    """100,000 machines in one piece held the event loop for 284 ms."""
    controller, _ = await launched(World())
    strangers = [
        listed(f"i-{number}", installation="of others") for number in range(5 * LISTED_AT_ONCE + 1)
    ]
    turns = 0
    pieces: list[MachinesListed] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def receive(event: Event) -> None:
        if isinstance(event, MachinesListed):
            pieces.append(event)

    waiting = asyncio.create_task(others())
    controller.journal.on_event(receive)
    record = controller.machine_lists._record_all_but_last
    shown, last = await record(EAST, controller.journal.now, strangers)
    assert last == (strangers[-1],)
    assert shown == {one.provider_id for one in strangers[:-1]}
    await cancelled(waiting)
    assert turns >= 5
    assert [(len(one.machines), one.more) for one in pieces] == [(LISTED_AT_ONCE, True)] * 5
    assert len(controller.state.foreign[EAST]) == 5 * LISTED_AT_ONCE


@on_virtual_time
async def test_a_failed_garbage_collection_is_logged_with_its_provider_and_retried() -> None:
    world = World()
    world.east.collect_script.append(BROKEN)
    controller = await controller_of(world)
    with capture_logs() as logs:
        await watch(controller, 3700.0)
    (line,) = [one for one in logs if one["event"] == "resources_not_deleted"]
    assert (line["provider"], line["error"]) == (EAST, str(BROKEN))
    assert len(world.east.collected) >= 2
