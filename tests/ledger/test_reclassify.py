"""A changed catalogue: queued and running jobs get the class that its SKUs give them."""

import copy
import dataclasses

from autoscaler.ledger.ledger import Ledger
from autoscaler.model import events as e
from autoscaler.model.catalogue import Access, Catalogue
from autoscaler.model.changes import Record
from autoscaler.model.jobs.job import JobState
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku

CLOSED = dataclasses.replace(sku("new"), access=Access(repositories=("acme/other",), forks=True))
SHARED = dataclasses.replace(sku(max_machines=4), fair_share=0.5)


def after_restart(world: World, changed: Catalogue) -> Ledger:
    """The ledger of a controller that started with the changed catalogue instead."""
    state = world.state
    records: list[Record] = [
        *state.launch_requests.values(),
        *state.machines.values(),
        *state.runners.values(),
        *state.jobs.values(),
    ]
    found = Ledger(changed)
    found.restore(copy.deepcopy(records), ())
    return found


def indexes(ledger: Ledger) -> dict[str, object]:
    """The indexes of jobs, as values."""
    s = ledger.state
    return {
        "queues": {demand: list(queue) for demand, queue in s.queues.items()},
        "waiting": list(s.waiting),
        "in_progress": +s.in_progress,
        "running": dict(s.running),
        "by_repository": {
            demand: {name: list(queue) for name, queue in queues.items()}
            for demand, queues in s.queues_by_repository.items()
        },
        "unadmitted": +s.unadmitted,
        "disputed": +s.disputed,
        "unmatched": {reason: list(jobs) for reason, jobs in s.unmatched.items()},
    }


def busy() -> World:
    world = World(catalogue(sku(), sku("cpu")))
    world.queue(1, 2)
    world.queue(3, labels=("cpu",))
    world.queue(4, labels=("new",))
    world.starts(1, world.ready("r"))
    return world


def test_jobs_are_indexed_as_after_a_restart_with_the_changed_catalogue() -> None:
    for changed in (
        catalogue(sku(), sku("new")),  # cpu is gone, and new is there
        catalogue(SHARED, sku("cpu")),  # a fair share
        catalogue(sku("gpu", labels=("new",)), sku("cpu")),
        catalogue(sku("cpu")),
        catalogue(sku(), sku("cpu"), CLOSED),  # labels match now, access does not
    ):
        world = busy()
        world.ledger.change_catalogue(changed)
        assert indexes(world.ledger) == indexes(after_restart(world, changed))


def test_only_jobs_that_change_are_stored_again() -> None:
    world = busy()
    world.ledger.take_changes()
    assert world.ledger.change_catalogue(catalogue(sku(), sku("cpu"), sku("new"))) == 1
    (job,) = world.ledger.take_changes().records
    assert job.state is JobState.QUEUED
    assert world.job(4).demand is not None


def test_a_removed_fair_share_and_back_leaves_no_trace() -> None:
    world = busy()
    before = indexes(world.ledger)
    world.ledger.change_catalogue(catalogue(SHARED, sku("cpu")))
    assert indexes(world.ledger)["running"] != before["running"]
    world.completes(2)
    world.ledger.change_catalogue(catalogue(sku(), sku("cpu")))
    world.observe(1, JobState.COMPLETED)
    assert indexes(world.ledger)["running"] == {}


def test_the_installation_ids_stay_those_of_the_ledger() -> None:
    world = busy()
    own = world.state.catalogue.installations.own
    world.ledger.change_catalogue(catalogue(sku()))
    assert world.state.catalogue.installations.own == own
    world.do(e.TimePassed)
