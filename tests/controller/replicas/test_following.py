"""A replica that does not lead: when it takes the lease, and which deliveries it stores."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.replicas import LEASE_LENGTH, Lease, OtherFleetError, Replica
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.replicas.following import LOOK_EVERY, Follower, FollowerIntake
from tests.controller.controllers import parse
from tests.controller.replicas.shared_store import OTHER, LeasedStore, queued
from tests.controller.virtual_time import EPOCH, VirtualClock, on_virtual_time

ME = Replica("host 1, process 1", "https://host-1:8443")


def following(store: LeasedStore, *, intake_only: bool = False) -> "asyncio.Task[Lease]":
    follower = Follower(store, ME, VirtualClock())
    return asyncio.create_task(follower.until_leading(intake_only=intake_only))


def free(store: LeasedStore) -> None:
    store.lease = replace(store.lease, expired=True)


@on_virtual_time
async def test_a_free_lease_is_taken_within_half_a_second() -> None:
    store = LeasedStore()
    task = following(store)
    await asyncio.sleep(60.0)
    assert store.taken_at == []
    free(store)
    lease = await task
    assert (lease.holder, lease.mine, lease.epoch) == (ME, True, 2)
    assert store.taken_at[0] <= EPOCH + 60.0 + LOOK_EVERY


@on_virtual_time
async def test_intake_only_never_leads() -> None:
    store = LeasedStore()
    free(store)
    task = following(store, intake_only=True)
    await asyncio.sleep(600.0)
    assert store.taken_at == []
    task.cancel()


@on_virtual_time
async def test_a_lease_of_an_earlier_server_is_honoured_for_its_whole_length() -> None:
    """The server that took over may lack the last renewal, and even the last holder."""
    store = LeasedStore()
    task = following(store)
    await asyncio.sleep(10.0)
    store.fail_over()
    free(store)
    await task
    assert EPOCH + 10.0 + LEASE_LENGTH <= store.taken_at[0] < EPOCH + 12.0 + LEASE_LENGTH


@on_virtual_time
async def test_a_new_replica_honours_a_lease_for_its_whole_length() -> None:
    """It cannot know whether its server has just taken over."""
    store = LeasedStore()
    store.lease = replace(store.lease, expires=EPOCH - 1.0, expired=True)
    await following(store)
    assert EPOCH + LEASE_LENGTH <= store.taken_at[0] < EPOCH + LEASE_LENGTH + 1.0


@on_virtual_time
async def test_a_new_replica_takes_a_lease_that_was_given_up() -> None:
    store = LeasedStore()
    store.lease = replace(store.lease, given_up=True, expired=True)
    await following(store)
    assert store.taken_at[0] <= EPOCH + LOOK_EVERY


@on_virtual_time
async def test_a_lease_that_is_given_up_on_the_same_server_is_taken_at_once() -> None:
    """A rolling upgrade ends the leader soon after the other replica started."""
    store = LeasedStore()
    task = following(store)
    await asyncio.sleep(1.0)
    store.lease = replace(store.lease, given_up=True, expired=True)
    await task
    assert store.taken_at[0] <= EPOCH + 1.0 + 2 * LOOK_EVERY


@on_virtual_time
async def test_a_lease_that_was_given_up_to_an_earlier_server_is_honoured() -> None:
    """A replica may have taken it since, at the server that failed."""
    store = LeasedStore()
    task = following(store)
    await asyncio.sleep(1.0)
    store.lease = replace(store.lease, given_up=True, expired=True)
    store.fail_over()
    await task
    assert store.taken_at[0] >= EPOCH + 1.0 + LEASE_LENGTH


@on_virtual_time
async def test_a_store_that_is_not_reached_is_logged_once_a_minute() -> None:
    store = LeasedStore()
    follower = Follower(store, ME, VirtualClock())
    task = asyncio.create_task(follower.until_leading())
    await asyncio.sleep(1.0)
    assert (seen := follower.lease) is not None
    assert seen.holder == OTHER
    store.reached = False
    with capture_logs() as logs:
        await asyncio.sleep(150.0)
    assert follower.lease is None
    assert [one["event"] for one in logs] == ["store_not_reached"] * 3
    store.reached = True
    free(store)
    await task


@on_virtual_time
async def test_a_delivery_of_a_scope_is_stored_before_it_is_acknowledged() -> None:
    store = LeasedStore()
    intake = FollowerIntake(store, parse, lambda name: name == "acme/widgets")
    made = queued(1)
    assert await intake.accept(made) is True
    assert list(store.inbox) == [made.key]
    assert await intake.accept(made) is False
    intake = FollowerIntake(store, parse, lambda _: False)
    assert await intake.accept(queued(2)) is None
    assert list(store.inbox) == [made.key]


@on_virtual_time
async def test_a_malformed_body_is_refused_and_a_failing_store_reported() -> None:
    store = LeasedStore()
    intake = FollowerIntake(store, parse, lambda _: True)
    with pytest.raises(ValueError, match="Expecting value"):
        intake.accept(replace(queued(1), body=b"no JSON"))
    store.failure = StoreError("the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        await intake.accept(queued(3))


@on_virtual_time
async def test_the_store_of_another_fleet_is_never_taken() -> None:
    store = LeasedStore()
    store.lease = replace(store.lease, holder=Replica("host 3", "", "theirs"), expired=True)
    follower = Follower(store, Replica("host 1", "", "ours"), VirtualClock())
    with pytest.raises(
        OtherFleetError, match="has the state of fleet theirs, and this is fleet ours"
    ):
        await follower.until_leading()
    assert store.taken_at == []
