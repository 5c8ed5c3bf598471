"""A job with several labels needs one machine, whichever label is the name of a SKU."""

import pytest

from autoscaler.model.plan import Launch
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku


@pytest.mark.case(
    "several labels of one job launch several machines",
    topic="Complaints about other fleets",
    source="pytorch/test-infra",
)
@pytest.mark.parametrize(
    "labels",
    [
        ("gpu", "fast"),
        ("self-hosted", "linux", "x64", "gpu", "fast", "a100"),
        ("fast", "gpu", "GPU", "Fast"),
    ],
)
def test_a_job_with_several_labels_gets_one_machine(labels: tuple[str, ...]) -> None:
    shared = ("gpu", "fast", "a100")
    world = World(catalogue(sku("first", labels=shared), sku("second", labels=shared)))
    world.queue(1, labels=labels)
    assert [(one.sku, one.count) for one in world.intents(Launch)] == [("first", 1)]
    world.carry_out()
    assert world.intents(Launch) == []
