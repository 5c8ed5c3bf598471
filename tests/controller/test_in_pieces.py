"""What comes by the thousand is taken in and carried out in pieces, so that nothing waits behind it."""

from collections.abc import Sequence

from autoscaler.controller.executor import LAUNCHED_AT_ONCE
from autoscaler.controller.launching import ANSWERED_AT_ONCE
from autoscaler.model.catalogue import IdlePolicy, Limits
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import MachinesListed
from autoscaler.model.machines import Machine, MachineState
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import listed
from tests.planner.fleets import EAST, catalogue, sku

MANY = 2 * LAUNCHED_AT_ONCE + 100


def wants(machines: int, limit: int | None = None) -> World:
    ready = sku(idle=IdlePolicy(minimum=machines))
    return World(catalogue=catalogue(ready, limits=Limits(machines=limit)))


def most_in_a_commit(world: World, state: MachineState) -> int:
    """Return how many machines came to a state in one transaction at most."""
    return max(
        sum(isinstance(one, Machine) and one.state is state for one in commit.records)
        for commit in world.store.commits
    )


def count(controller: Controller, state: MachineState) -> int:
    return sum(one.state is state for one in controller.state.machines.values())


@on_virtual_time
async def test_a_plan_of_thousands_of_machines_is_recorded_call_by_call() -> None:
    world = wants(MANY)
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    assert count(controller, MachineState.LAUNCHED) == MANY == len(world.east.running)
    assert most_in_a_commit(world, MachineState.REQUESTED) == LAUNCHED_AT_ONCE
    assert controller.crashes == []


@on_virtual_time
async def test_an_answer_of_a_thousand_machines_is_recorded_piece_by_piece() -> None:
    world = wants(ANSWERED_AT_ONCE * 2 + 1)
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    assert count(controller, MachineState.LAUNCHED) == ANSWERED_AT_ONCE * 2 + 1
    assert most_in_a_commit(world, MachineState.LAUNCHED) == ANSWERED_AT_ONCE
    assert controller.crashes == []


@on_virtual_time
async def test_what_others_add_between_two_calls_of_a_plan_counts_in_the_caps() -> None:
    """A machine of a lost installation may be listed while thousands of launches are being recorded."""
    world = wants(MANY, limit=MANY)
    controller = Controller(world)
    await controller.resume()
    stranger = listed("i-stranger", installation="of others")

    def appears(rows: Sequence[HistoryRow]) -> None:
        if any(row.event == "requested" for row in rows):
            now = world.clock.now()
            controller.journal.note(MachinesListed(now, EAST, now, False, (stranger,), more=True))

    controller.journal.on_history(appears)
    controller.journal.changed.clear()
    await controller.loop.turn()
    assert len(controller.state.machines) == LAUNCHED_AT_ONCE
    assert controller.journal.changed.is_set(), "the rest is planned again at once"
    await controller.turn()
    await controller.turn()
    assert controller.state.machines_used == MANY
    assert len(world.east.running) == MANY - 1
