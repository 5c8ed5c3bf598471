"""Why the jobs of a class wait, as it enters the history when it changes."""

from autoscaler.controller.ports.provider_errors import ProviderError
from autoscaler.controller.reporting.wait_reasons import LASTING, WaitRecorder
from autoscaler.ledger.records.class_cache import MOST_CLASSES
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from tests.controller.agents import queue, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time


async def reasons(controller: Controller, world: World) -> list[tuple[str, str]]:
    job = controller.state.jobs[JobId(1)]
    assert job.demand is not None
    return [(row.event, row.code) for row in await world.store.history("demand", job.demand.text)]


@on_virtual_time
async def test_a_reason_is_recorded_once_it_lasts() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    refused = ProviderError(FailureClass.CAPACITY, "Insufficient", "none in the zone")
    world.east.launch_script.append(refused)
    await queue(controller, 1)
    await controller.turn()
    assert await reasons(controller, world) == [("served", "")]
    await controller.turn()
    await controller.turn(then=LASTING)
    await controller.turn()
    assert await reasons(controller, world) == [("served", ""), ("blocked", "capacity")]


@on_virtual_time
async def test_a_class_that_gets_jobs_again_is_not_recorded_again() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.turn()
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn(then=LASTING)
    await controller.turn()
    await queue(controller, 2)
    await controller.turn(then=LASTING)
    await controller.turn()
    assert await reasons(controller, world) == [("served", "")]


@on_virtual_time
async def test_a_finished_job_that_only_the_store_has_says_what_was_tried() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    refused = ProviderError(FailureClass.CAPACITY, "Insufficient", "none in the zone")
    world.east.launch_script.append(refused)
    await queue(controller, 1)
    await controller.turn()
    await controller.turn(then=LASTING)
    await controller.turn()
    await say(controller, 1, JobState.COMPLETED)
    await controller.intake.apply_waiting()
    del controller.state.jobs[JobId(1)]
    past = await controller.queries.past(JobId(1))
    assert [one.code for one in past.waited_for] == ["capacity"]
    (failed,) = past.failed_launches
    assert (failed.code, failed.message) == ("capacity", "Insufficient: none in the zone")
    explained = await controller.queries.ended(JobId(1))
    assert explained is not None
    assert (explained.skus, explained.tried) == (("gpu",), ())


@on_virtual_time
async def test_classes_without_jobs_are_forgotten_if_there_are_many() -> None:
    controller = Controller(World())
    await controller.resume()
    recorder = WaitRecorder(controller.journal)
    classes = [
        DemandClass("org:acme", "Default", (f"label-{number}",), (SkuName("gpu"),))
        for number in range(MOST_CLASSES + 2)
    ]
    recorder.note(dict.fromkeys(classes, ()))
    recorder.note({classes[0]: ()})
    assert set(recorder._known) == {classes[0]}
    assert len(recorder._settled) <= MOST_CLASSES
