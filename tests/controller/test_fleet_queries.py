"""Questions of operators, answered by a whole controller: from memory, and from the stored history."""

from dataclasses import replace

import pytest

from autoscaler.controller.composition import Ports
from autoscaler.controller.operators.fleet_queries import FleetQueries, UnknownRecordError
from autoscaler.model.accounting import MachineUse
from autoscaler.model.catalogue import Access
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.views.jobs.explanation import explain_labels
from autoscaler.views.jobs.lists import JobFilter, running_jobs, unmatched_jobs, waiting_jobs
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, knows_sku, machines
from tests.controller.agents import launched, queue, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import ALICE
from tests.planner.fleets import catalogue, sku


@on_virtual_time
async def test_the_status_follows_the_last_plan() -> None:
    controller = Controller(World())
    await controller.resume()
    queries: FleetQueries = controller.queries
    assert queries.status().skus[0].waiting == 0
    await queue(controller, 1)
    await controller.turn()
    seen = queries.status()
    assert (seen.waiting, seen.blocked, seen.machines) == (1, 0, 1)
    (job,) = waiting_jobs(queries.fleet(), queries.waiting, JobFilter(), Part(0, 10)).rows
    assert job.wait is not None
    assert job.wait.code == "launch_planned"


@on_virtual_time
async def test_a_provider_that_was_never_listed_is_trouble() -> None:
    controller = Controller(World())
    assert [one.about for one in controller.queries.status().faults] == ["east"]


@on_virtual_time
async def test_the_history_of_a_job_includes_that_of_its_machine() -> None:
    controller, (agent,) = await launched(World())
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.intake.apply_waiting()
    queries = controller.queries
    (job,) = running_jobs(queries.fleet(), queries.waiting, JobFilter(), Part(0, 10)).rows
    (machine,) = machines(
        queries.fleet(), MachineFilter(state=MachineState.ASSIGNED), Part(0, 10)
    ).rows
    assert (job.id, job.machine) == (1, machine.id)
    assert running_jobs(queries.fleet(), queries.waiting, JobFilter(), Part(0, 0)).rows == []
    assert queries.machine(machine.id) == machine
    assert queries.machine("unknown") is None
    (paid,) = queries.cost().skus
    assert queries.cost().dollars_per_hour == paid.working > 0.0
    rows = await queries.history("1")
    assert {row.kind for row in rows} >= {"job", "machine", "runner"}
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert machine.provider_id is not None
    assert await queries.history(machine.provider_id) == await queries.history(machine.id)
    explained = queries.explain(JobId(1))
    assert explained is not None
    assert explained.next_event is None


@on_virtual_time
async def test_a_record_that_is_not_in_memory_is_looked_up_in_the_store() -> None:
    controller, _ = await launched(World())
    del controller.state.jobs[JobId(1)]
    assert controller.queries.explain(JobId(1)) is None
    assert [row.kind for row in await controller.queries.history("1")] == ["job"]
    with pytest.raises(UnknownRecordError):
        await controller.queries.history("nothing")


@on_virtual_time
async def test_a_sku_is_known_from_the_catalogue_or_from_a_machine() -> None:
    controller, _ = await launched(World())
    assert knows_sku(controller.queries.fleet(), SkuName("gpu"))
    assert not knows_sku(controller.queries.fleet(), SkuName("gpuu"))


@on_virtual_time
async def test_labels_are_explained_by_the_catalogue() -> None:
    controller = Controller(World())
    assert explain_labels(controller.queries.fleet(), "acme/widgets", ["gpu"]).skus == ("gpu",)


@on_virtual_time
async def test_jobs_that_no_sku_serves_are_counted_by_the_catalogue_in_force() -> None:
    controller = Controller(World())
    await controller.resume()
    await say(controller, 1, JobState.QUEUED, labels=("cpu",))
    await say(controller, 2, JobState.QUEUED, labels=("gpuu",))
    await controller.intake.apply_waiting()
    queries = controller.queries
    assert queries.status().unmatched == {"labels": 2}
    assert [job.id for job in unmatched_jobs(queries.fleet(), JobFilter(), Part(0, 9)).rows] == [
        1,
        2,
    ]
    closed = replace(sku("cpu"), access=Access(repositories=("acme/other",), forks=True))
    await controller.parts.reconfiguration.change_catalogue(
        catalogue(sku(), closed), ALICE, ("skus.cpu",)
    )
    assert queries.status().unmatched == {"access": 1, "labels": 1}
    await controller.parts.reconfiguration.change_catalogue(
        catalogue(sku(), sku("cpu")), ALICE, ("skus.cpu",)
    )
    assert queries.status().unmatched == {"labels": 1}


@on_virtual_time
async def test_the_cost_has_what_was_spent() -> None:
    class Spending(World):
        def ports(self) -> Ports:
            return replace(super().ports(), spent=lambda: {("gpu", MachineUse.FAILED_LAUNCH): 12.5})

    controller = Controller(Spending())
    await controller.resume()
    (spent,) = controller.queries.cost().spent
    assert (spent.sku, spent.dollars) == ("gpu", 12.5)
