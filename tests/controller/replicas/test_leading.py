"""The replica that leads: it renews its lease, ends without it, and applies what others stored."""

import asyncio

import pytest

from autoscaler.controller.intake.inbox import READ_EVERY, read_repeatedly
from autoscaler.controller.ports.replicas import LEASE_LENGTH, LEASE_MARGIN
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.replicas.leading import (
    RENEW_EVERY,
    end_with_the_lease,
    renew_repeatedly,
    renewing,
)
from autoscaler.controller.replicas.lease_time import LeaseTime
from tests.controller.controllers import Controller, World
from tests.controller.replicas.shared_store import LeasedStore, queued
from tests.controller.virtual_time import VirtualClock, on_virtual_time


def test_the_lease_is_counted_from_before_its_renewal_was_sent() -> None:
    now = 100.0
    lease_time = LeaseTime(lambda: now)
    assert lease_time.left() < 0
    sent_at = lease_time.now()
    now = 107.0
    lease_time.renewed(sent_at)
    assert lease_time.left() == LEASE_LENGTH - LEASE_MARGIN - 7.0
    lease_time.lost()
    assert lease_time.left() < 0


@on_virtual_time
async def test_the_lease_is_renewed_five_times_in_its_length() -> None:
    store = LeasedStore()
    task = asyncio.create_task(renew_repeatedly(store, VirtualClock()))
    await asyncio.sleep(LEASE_LENGTH - 0.1)
    assert store.renewals == LEASE_LENGTH / RENEW_EVERY
    store.reached = False
    with pytest.raises(StoreError):
        await task


@on_virtual_time
async def test_the_controller_ends_once_its_lease_was_not_renewed_in_time() -> None:
    store, clock = LeasedStore(), VirtualClock()
    await store.renew()
    began = clock.now()
    watching = asyncio.create_task(end_with_the_lease(store, clock))
    await asyncio.sleep(10.0)
    await store.renew()
    with pytest.raises(StoreError, match="not renewed in time"):
        await watching
    lasts = LEASE_LENGTH - LEASE_MARGIN
    assert began + 10.0 + lasts <= clock.now() <= began + 10.1 + lasts


@on_virtual_time
async def test_deliveries_of_other_replicas_are_applied_once_in_any_order_of_their_rows() -> None:
    """A row that was inserted first may appear last: its transaction committed later."""
    store = LeasedStore()
    world = World(store=store)
    controller = Controller(world)
    await controller.resume()
    intake = controller.intake
    reading = asyncio.create_task(read_repeatedly(store, intake, VirtualClock()))
    first, second = queued(1), queued(2)
    await store.accept(second)
    await asyncio.sleep(2 * READ_EVERY)
    assert await intake.apply_waiting() == 1
    store.inbox = {first.key: first, **store.inbox}
    await asyncio.sleep(2 * READ_EVERY)
    assert await intake.apply_waiting() == 1
    assert {job.id for job in controller.state.jobs.values()} == {1, 2}
    await asyncio.sleep(2 * READ_EVERY)
    assert await intake.apply_waiting() == 0
    reading.cancel()


@on_virtual_time
async def test_a_delivery_of_its_own_is_not_taken_for_another_one() -> None:
    store = LeasedStore()
    controller = Controller(World(store=store))
    await controller.resume()
    await controller.intake.accept(queued(1))
    controller.intake.resume(*await store.unapplied(10))
    assert controller.intake.jobs_queued == 1
    assert await controller.intake.apply_waiting() == 1


@on_virtual_time
async def test_the_lease_is_renewed_while_a_controller_starts_for_longer_than_it_lasts() -> None:
    store = LeasedStore()
    async with renewing(store, VirtualClock()):
        await asyncio.sleep(2.0 * LEASE_LENGTH)
        assert store.leads_for() > 0.0
    renewals = store.renewals
    await asyncio.sleep(LEASE_LENGTH)
    assert store.renewals == renewals


@on_virtual_time
async def test_a_start_that_lost_its_lease_fails_with_its_own_error() -> None:
    store = LeasedStore()
    async with renewing(store, VirtualClock()):
        store.reached = False
        await asyncio.sleep(LEASE_LENGTH)
        assert store.leads_for() <= 0.0
        with pytest.raises(StoreError, match="does not answer"):
            await store.unapplied(1)
