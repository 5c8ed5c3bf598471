"""Machines of other installations count from the start, also at a provider that cannot be listed yet."""

import dataclasses

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.catalogue import Catalogue, LaunchOption, Limits
from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId, ProviderName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.prices_and_quotas import ReadingKind
from tests.controller.controllers import Controller, World, delivery
from tests.controller.fakes_provider import FakeProvider, Instance
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST, catalogue, offering, sku

WEST = ProviderName("west")
THEIRS = ProviderMachineId("i-theirs")
DOWN = ProviderError(FailureClass.UNKNOWN, "Unreachable", "connection refused")


def in_west(limits: Limits, max_machines: int | None = None) -> Catalogue:
    """Return a fleet whose only SKU is launched at `west`. `east` is a further provider."""
    there = dataclasses.replace(offering(), provider=WEST, quota="west/G")
    one = sku(max_machines=max_machines)
    option = LaunchOption(WEST, one.launch_options[0].capacity_types, (there,))
    return catalogue(dataclasses.replace(one, launch_options=(option,)), limits=limits)


def world_with_theirs(known: Catalogue, of: str = "gpu") -> World:
    """Return a world where `east` has a machine of another installation, of a SKU with this name."""
    world = World(known)
    world.providers[WEST] = FakeProvider(WEST)
    made = LaunchRequestId("unknown"), SkuName(of), "east/g5.xlarge/a/on-demand", "t0", "other"
    world.east.add(Instance(THEIRS, *made))
    return world


async def started(world: World, *listed: ProviderName) -> Controller:
    """Return a new process, after its first listings of these providers."""
    controller = Controller(world)
    await controller.resume()
    for name in listed:
        assert await controller.machine_lists.list_machines(name)
    return controller


async def launches(world: World, controller: Controller) -> int:
    """Queue a job and return how many machines `west` has then."""
    await controller.intake.accept(delivery(1, 1, JobState.QUEUED, world.clock.now()))
    await controller.turn()
    return len(world.providers[WEST].running)


@pytest.mark.case(
    "after a restart one provider cannot be listed: machines of another installation there still count",
    topic="Kubernetes",
    source="Karpenter: tags",
)
@pytest.mark.parametrize(
    "known",
    [
        in_west(Limits(machines=1)),
        in_west(Limits(dollars_per_hour=1.5)),
        in_west(Limits(), max_machines=1),
    ],
    ids=["machines", "dollars", "max_machines"],
)
@on_virtual_time
async def test_foreign_machines_count_before_their_provider_is_listed(known: Catalogue) -> None:
    world = world_with_theirs(known)
    began_at = world.clock.now()
    await started(world, EAST, WEST)
    for reading in world.store.readings[EAST, ReadingKind.FOREIGN_USAGE]:
        assert began_at < reading.read_at <= world.clock.now()
    world.east.list_script.append(DOWN)
    again = await started(world, WEST)
    assert await launches(world, again) == 0
    del world.east.instances[THEIRS]
    world.east.list_script.clear()
    await again.machine_lists.list_machines(EAST)
    await again.turn()
    assert len(world.providers[WEST].running) == 1, "their machine is gone"


@on_virtual_time
async def test_foreign_machines_are_counted_once_after_their_provider_is_listed() -> None:
    world = world_with_theirs(in_west(Limits(machines=2)))
    await started(world, EAST, WEST)
    again = await started(world, WEST)
    assert again.journal.fleet().usage.machines == 1
    await again.machine_lists.list_machines(EAST)
    usage = again.journal.fleet().usage
    assert (usage.machines, usage.dollars_per_hour, usage.by_sku[SkuName("gpu")]) == (1, 1.0, 1)
    assert await launches(world, again) == 1


@on_virtual_time
async def test_an_incomplete_listing_does_not_end_the_stored_count() -> None:
    world = world_with_theirs(in_west(Limits(machines=1)))
    await started(world, EAST, WEST)
    kept = dict(world.store.readings)
    del world.east.instances[THEIRS]
    world.east.list_script.append(DOWN)
    again = Controller(world)
    await again.resume()
    assert not await again.machine_lists.list_machines(EAST)
    assert again.journal.fleet().usage.machines == 1
    assert world.store.readings == kept


@on_virtual_time
async def test_foreign_machines_are_stored_again_only_after_a_change() -> None:
    world = world_with_theirs(in_west(Limits()))
    controller = await started(world, EAST)
    world.store.readings_broken = True
    await controller.machine_lists.list_machines(EAST)
    del world.east.instances[THEIRS]
    with pytest.raises(StoreError):
        await controller.machine_lists.list_machines(EAST)
    world.store.readings_broken = False
    again = await started(world, EAST)
    assert again.journal.fleet().usage.machines == 0
    third = await started(world)
    assert third.journal.fleet().usage.machines == 0


@on_virtual_time
async def test_skus_of_others_count_in_the_limits_of_the_fleet_alone() -> None:
    """A tag may hold any text, which the store might refuse."""
    world = world_with_theirs(in_west(Limits()), of="\0odd/\udc80")
    await started(world, EAST)
    again = await started(world)
    usage = again.journal.fleet().usage
    assert (usage.machines, usage.dollars_per_hour) == (1, 1.0)
    assert set(again.state.used_by_sku) == {""}
