"""Every page can be written if any optional value is missing and if any collection is empty."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from autoscaler.console.pages import SkuPage
from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.wait_objectives import Starts
from autoscaler.views.jobs.lists import JobFilter, waiting_jobs
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, machines
from autoscaler.views.offerings import offerings_of
from autoscaler.views.quotas import quotas_of
from tests.console.serving import pages
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku
from tests.server.asked_world import AskedWorld

GPU = SkuName("gpu")


def without(value: Any) -> Iterator[Any]:
    """Yield copies of a view, each with one optional value None or one collection empty, at any depth."""
    if is_dataclass(value) and not isinstance(value, type):
        yield from _without_fields(value)
    elif isinstance(value, Mapping):
        yield {}
        for key, one in value.items():
            yield from ({**value, key: changed} for changed in without(one))
    elif isinstance(value, Collection) and not isinstance(value, str):
        yield ()
        ordered = list(value)
        for index, one in enumerate(ordered):
            for changed in without(one):
                yield (*ordered[:index], changed, *ordered[index + 1 :])


def _without_fields(value: Any) -> Iterator[Any]:
    hints = get_type_hints(type(value))
    for field in fields(value):
        if type(None) in get_args(hints[field.name]):
            yield replace(value, **{field.name: None})
        for changed in without(getattr(value, field.name)):
            yield replace(value, **{field.name: changed})


def asked() -> AskedWorld:
    world = World(catalogue(sku(max_machines=2), sku("cpu")))
    world.queue(1, 2, 3)
    world.queue(4, labels=("cpu",))
    world.queue(5, labels=("gpuu",))
    world.launch(1, "a")
    world.boot("a0")
    world.do(e.HealthChecksReported, MachineId("a0"), True, "ok")
    world.now += 400.0
    fault = Fault("store_fails", "", "the store fails", ("gpu",), since=1.0, recovered_at=2.0)
    return AskedWorld(world, hour={"gpu": Starts(5, 1, late_at=3.0)}, observed=(fault,))


def test_every_page_is_written_without_any_of_its_optional_values() -> None:
    answers, writer = asked(), pages()
    overview, fleet = answers.overview(), answers.fleet()
    frame = writer.frame("alice", answers.now())
    waiting = waiting_jobs(fleet, answers.waiting, JobFilter(), Part(0, 10)).rows
    shown = machines(fleet, MachineFilter(), Part(0, 10)).rows
    page = SkuPage(
        overview,
        next(one for one in overview.status.skus if one.sku == GPU),
        tuple(offerings_of(fleet, [GPU])),
        tuple(quotas_of(fleet, GPU)),
        waiting,
        (),
        shown,
    )
    count = 0
    for write, view in (
        (writer.overview, overview),
        (writer.sku, page),
        (writer.cost, answers.cost()),
    ):
        for changed in without(view):
            assert "</html>" in write(changed, frame)
            count += 1
    assert count > 150
