"""The store that replicas of a world share: its lease, its sessions and its faults."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from autoscaler.controller.ports.replicas import LEASE_LENGTH, Lease, Replica
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.replicas.following import Follower
from autoscaler.model.identifiers import InstallationId, Installations, Seconds
from autoscaler.simulator.world.controller.shared_store import RETRIES_FOR, SharedMemoryStore
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.processes import OWNER, Tasks, send
from autoscaler.simulator.world.schedule import Fault, FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH, VirtualClock
from tests.controller.virtual_time import on_virtual_time

T = TypeVar("T")
NEW = Installations(InstallationId("0000beef"))


def delivery(number: int) -> Delivery:
    return Delivery(f"d-{number}", "workflow_job", EPOCH, f"body {number}".encode())


class Shared:
    """A store, and processes that use it."""

    def __init__(self, *faults: Fault) -> None:
        self.violations: list[str] = []
        self.store = SharedMemoryStore(FaultSchedule(faults, 0.0), self.violations.append)

    async def process(self, host: int) -> "Client":
        client = Client(self.store, host)
        await client.run(self.store.open(host))
        return client


class Client:
    """One process."""

    def __init__(self, store: SharedMemoryStore, host: int) -> None:
        self.tasks = Tasks()
        self.replica = Replica(f"replica-{host}", "")
        self._store = store

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        token = OWNER.set(self.tasks)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            OWNER.reset(token)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await self.start(work)

    async def seek(self, take_on: float | None = 1.0) -> Lease:
        return await self.run(self._store.seek(self.replica, take_on=take_on))

    async def follow(self) -> Lease:
        follower = Follower(self._store, self.replica, VirtualClock())
        return await self.run(follower.until_leading())

    async def write(self) -> None:
        await self.run(self._store.commit((), (), installations=NEW))

    async def accept(self, number: int) -> bool:
        return await self.run(self._store.accept(delivery(number)))

    @property
    def leads_for(self) -> Seconds:
        return self.tasks.process.leads()


@on_virtual_time
async def test_one_process_at_a_time_has_the_lease_and_the_next_epoch() -> None:
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    taken = await first.seek()
    assert taken.mine
    assert 0.0 < first.leads_for < LEASE_LENGTH
    await asyncio.sleep(LEASE_LENGTH - 1.0)
    seen = await second.seek()
    assert (seen.mine, seen.expired, seen.holder) == (False, False, first.replica)
    assert second.leads_for < 0.0
    await asyncio.sleep(2.0)
    later = await second.seek()
    assert later.mine
    assert later.epoch > taken.epoch
    assert shared.violations == []


@on_virtual_time
async def test_a_process_that_lost_the_lease_writes_nothing() -> None:
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    await first.seek()
    await first.write()
    assert shared.store.installations == NEW
    shared.store.installations = Installations(InstallationId("00000001"))
    await asyncio.sleep(LEASE_LENGTH + 1.0)
    await second.seek()
    with pytest.raises(StoreError, match="not renewed in time"):
        await first.write()
    assert shared.store.installations != NEW
    assert first.leads_for < 0.0
    with pytest.raises(StoreError, match="not renewed in time"):
        await first.accept(1)
    assert not shared.store.inbox


@on_virtual_time
async def test_a_lease_that_is_given_up_is_free_at_once() -> None:
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    await first.seek()
    await first.run(shared.store.close())
    assert first.leads_for < 0.0
    assert (await second.seek()).mine
    with pytest.raises(StoreError):
        await first.write()
    assert shared.violations == []


@on_virtual_time
async def test_a_commit_whose_answer_is_lost_is_stored() -> None:
    shared = Shared(Fault(10.0, FaultKind.COMMIT_UNKNOWN, 5.0))
    first = await shared.process(1)
    await first.seek()
    await asyncio.sleep(11.0)
    with pytest.raises(StoreError, match="unknown"):
        await first.write()
    assert shared.store.installations == NEW
    await asyncio.sleep(5.0)
    assert (await first.seek(take_on=None)).server == 1.0, "the same server"


@on_virtual_time
async def test_a_server_that_is_down_fails_calls_after_a_while_and_is_another_one_then() -> None:
    shared = Shared()
    first = await shared.process(1)
    await first.seek()
    shared.store.go_down(Fault(0.0, FaultKind.STORE_DOWN, 600.0))
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreError, match="does not answer"):
        await first.write()
    took = asyncio.get_running_loop().time() - began
    assert took == pytest.approx(RETRIES_FOR, abs=1.0)
    await asyncio.sleep(600.0)
    assert (await first.seek(take_on=None)).server == 2.0


@on_virtual_time
async def test_one_host_that_is_cut_off_does_not_reach_the_store() -> None:
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    shared.store.cut_off(1, 60.0)
    with pytest.raises(StoreError):
        await first.accept(1)
    assert await second.accept(2)
    assert list(shared.store.inbox) == [delivery(2).key]


@on_virtual_time
async def test_a_server_that_takes_over_lacks_what_was_written_last() -> None:
    shared = Shared()
    first = await shared.process(1)
    await first.seek()
    await first.accept(1)
    fault = Fault(0.0, FaultKind.STORE_FAILOVER, 5.0)
    shared.store.keep(fault)
    await first.accept(2)
    await first.write()
    shared.store.acknowledged = {delivery(1).key, delivery(2).key}
    shared.store.fail_over(fault)
    assert list(shared.store.inbox) == [delivery(1).key]
    assert shared.store.acknowledged == {delivery(1).key}
    assert shared.store.installations != NEW


@pytest.mark.parametrize("new", [False, True])
@on_virtual_time
async def test_no_follower_takes_the_lease_before_a_leader_that_is_cut_off_is_over(
    new: bool,
) -> None:
    """The server that took over lacks the leader's last renewals: its lease seems to be free."""
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    await first.follow()
    following = None if new else second.start(second.follow())
    fault = Fault(0.0, FaultKind.STORE_FAILOVER, 0.5)
    shared.store.keep(fault)
    for _ in range(13):
        await asyncio.sleep(1.0)
        await first.run(shared.store.renew())
    shared.store.cut_off(1, 60.0)
    shared.store.fail_over(fault)
    if following is None:
        second = await shared.process(3)
        following = second.start(second.follow())
    await asyncio.sleep(10.0)
    assert first.leads_for > 0.0
    assert second.leads_for < 0.0
    await following
    assert second.leads_for > 0.0
    assert shared.violations == []


@on_virtual_time
async def test_no_new_replica_takes_a_lease_that_was_given_up_to_an_earlier_server() -> None:
    """Another one took it, and the server that took over lacks that."""
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    await first.follow()
    await first.run(shared.store.close())
    fault = Fault(0.0, FaultKind.STORE_FAILOVER, 0.5)
    shared.store.keep(fault)
    await second.follow()
    shared.store.cut_off(2, 60.0)
    shared.store.fail_over(fault)
    third = await shared.process(3)
    following = third.start(third.follow())
    await asyncio.sleep(10.0)
    assert second.leads_for > 0.0
    assert third.leads_for < 0.0
    await following
    assert shared.violations == []


@on_virtual_time
async def test_two_leaders_are_a_violation_and_so_is_a_request_of_the_former() -> None:
    shared = Shared()
    first, second = await shared.process(1), await shared.process(2)
    await first.seek()
    fault = Fault(0.0, FaultKind.STORE_FAILOVER, 0.5)
    await first.run(shared.store.close())
    shared.store.keep(fault)
    third = await shared.process(3)
    await third.seek()
    shared.store.fail_over(fault)
    await asyncio.sleep(1.0)
    await second.seek(take_on=2.0)
    assert shared.violations == ["replica 2 took a lease that replica 3 has"]

    async def request() -> None:
        send(lambda: None, RuntimeError)

    await third.run(request())
    assert shared.violations[1:] == ["a request was sent by replica 3, which does not lead"]
    await second.run(request())
    assert len(shared.violations) == 2


@on_virtual_time
async def test_a_replica_that_never_led_may_only_accept() -> None:
    shared = Shared()
    first = await shared.process(1)
    await first.accept(1)
    assert shared.violations == []
    await first.write()
    assert shared.violations == ["replica 1 wrote, and never took the lease"]
