"""Faults in the stored history: begins, ends, restarts."""

from autoscaler.controller.ports.provider_errors import ProviderError
from autoscaler.controller.reporting.fault_history import MOST_A_DAY, FaultHistory, recorded_faults
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.spells import GONE_AFTER, FaultSpell
from autoscaler.model.reasons.table import FaultCode
from tests.controller.agents import queue, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time


async def spells(world: World) -> list[FaultSpell]:
    """The recorded faults, but for the one of a provider that is not listed here."""
    return [one for one in await recorded_faults(world.store) if one.code != "provider_not_listed"]


async def look(controller: Controller, then: float = 0.0) -> None:
    await controller.turn(then=then)
    await controller.parts.fault_history.look()


async def refused(world: World) -> tuple[Controller, Instant]:
    """A controller whose only job waits because a launch was refused, and since when it is recorded."""
    controller = Controller(world)
    await controller.resume()
    world.east.launch_script.append(
        ProviderError(FailureClass.CAPACITY, "Insufficient", "none in the zone")
    )
    await queue(controller, 1)
    await controller.turn()
    await look(controller)
    (found,) = await spells(world)
    assert (found.code, found.jobs, found.ended) == ("capacity", 1, None)
    return controller, found.began


@on_virtual_time
async def test_a_fault_is_stored_with_its_begin_its_jobs_and_its_end() -> None:
    world = World()
    controller, began = await refused(world)
    await say(controller, 1, JobState.COMPLETED)
    await look(controller, then=GONE_AFTER)
    await look(controller)
    (found,) = await spells(world)
    assert (found.began, found.ended, found.jobs) == (began, began, 1)


@on_virtual_time
async def test_a_restart_continues_the_faults_that_last() -> None:
    world = World()
    _, began = await refused(world)
    again = Controller(world)
    await again.resume()
    await look(again)
    (lasting,) = [one for one in again.queries.status().faults if one.code == "capacity"]
    assert lasting.since == began
    await say(again, 1, JobState.COMPLETED)
    await look(again)
    (found,) = await spells(world)
    assert (found.began, found.ended) == (began, None)
    await look(again, then=GONE_AFTER)
    await look(again)
    (found,) = await spells(world)
    assert found.began == began
    assert found.ended is not None


@on_virtual_time
async def test_a_day_has_a_maximum_of_faults() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    many = tuple(Fault.of(FaultCode.PROVIDER_NOT_LISTED, f"p{k}") for k in range(MOST_A_DAY + 1))
    history = FaultHistory(controller.journal, world.store, lambda: many, world.clock)
    await history.look()
    await history.look()
    assert len(await recorded_faults(world.store)) == MOST_A_DAY
