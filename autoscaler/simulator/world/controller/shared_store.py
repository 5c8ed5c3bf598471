"""A store in memory that several replicas share. Each process is a client of one server.

Behaves as `autoscaler.store.postgresql` does: each transaction of the leader renews the lease, and writes
nothing once another process has it. A connection that broke is replaced by a new one.
"""

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from autoscaler.controller.ports.replicas import LEASE_LENGTH, Lease, Replica
from autoscaler.controller.ports.store import Delivery, DeliveryKey, StoreError
from autoscaler.controller.replicas.lease_time import LeaseTime
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.controller.store import Backup, MemoryStore
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.processes import Process, calling, count_call, outside
from autoscaler.simulator.world.schedule import Fault, FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH

T = TypeVar("T")

RETRIES_FOR: Seconds = 10.0
"""How long a transaction is repeated while the server does not answer."""

TRIES_EVERY: Seconds = 1.0


class LeaseRow(NamedTuple):
    """The lease as the server has it. `client` is the number of the client that took it last.

    `expires` of one that was given up is the number of the server, with a minus.
    """

    holder: Replica
    client: int
    epoch: int
    expires: Instant


class Client:
    """The store as a process opened it. `generation` is that of the server's connections; 0: it has none.

    `expires` is what the last transaction left in the lease, if the process knows its outcome.
    """

    def __init__(self, number: int, host: int, process: Process, generation: int) -> None:
        self.number = number
        self.host = host
        self.process = process
        self.generation = generation
        self.epoch: int | None = None
        self.expires: Instant = math.nan
        self.closed = False
        self.lease_time = LeaseTime(asyncio.get_running_loop().time)


class SharedMemoryStore(MemoryStore):
    """Implements SharedStore for all processes of a world. The calling process decides which client it is.

    `leader` is the client that took the lease last, also if a server that took over does not know it.
    `acknowledged` are the deliveries that were stored for a sender, without those that a server lost.
    """

    def __init__(self, fault_schedule: FaultSchedule, violated: Callable[[str], None]) -> None:
        super().__init__()
        self.leader: Client | None = None
        self.took_over: Callable[[], None] = lambda: None
        self.acknowledged: set[DeliveryKey] = set()
        self.row = LeaseRow(Replica("", ""), client=0, epoch=0, expires=-1.0)
        self._fault_schedule = fault_schedule
        self._violated = violated
        self._clients: dict[Process, Client] = {}
        self._numbers = itertools.count(1)
        self._generation = 1
        self._down_until: Instant = 0.0
        self._cut_off_until: dict[int, Instant] = {}
        self._kept: dict[Fault, tuple[Backup, LeaseRow]] = {}

    # --- faults -------------------------------------------------------------------------------

    def keep(self, fault: Fault) -> None:
        """Copy everything durable, for the server that takes over in this fault."""
        self._kept[fault] = self.snapshot(), self.row

    def fail_over(self, fault: Fault) -> None:
        """Break all connections. The server that takes over has what was kept for this fault."""
        before = set(self.inbox)
        backup, self.row = self._kept.pop(fault)
        self.restore(backup)
        self.acknowledged -= before - set(self.inbox)
        self.go_down(fault)

    def go_down(self, fault: Fault) -> None:
        """Break all connections, and accept none until the fault ends."""
        self._generation += 1
        self._down_until = max(self._down_until, self._now() + fault.lasts)

    def cut_off(self, host: int, lasts: Seconds) -> None:
        """Break the connections of a host, and let no packet through for so long."""
        self._cut_off_until[host] = self._now() + lasts
        for client in self._clients.values():
            if client.host == host:
                client.generation = 0

    # --- processes ----------------------------------------------------------------------------

    async def open(self, host: int) -> None:
        """Open the store for the calling process, once the server answers."""
        process = calling()
        assert process is not None
        client = Client(next(self._numbers), host, process, self._generation)
        await self._connect(client, math.inf)
        self._clients[process] = client
        process.leads = client.lease_time.left
        process.sending = lambda: self._check_sender(client)

    async def seek(self, replica: Replica, *, take_on: Instant | None) -> Lease:
        """See `SharedStore.seek`."""
        client = self._client
        await count_call()
        await self._connect(client, 0.0)
        now, row = self._now(), self.row
        if take_on == self._generation and row.expires < now:
            epoch = max(row.epoch + 1, int(now))
            self.row = row = LeaseRow(replica, client.number, epoch, now + LEASE_LENGTH)
            self._take_over(client)
        expired = row.expires < now
        mine = row.client == client.number and not expired
        await count_call()
        if mine:
            client.epoch, client.expires = row.epoch, row.expires
            await self._transaction(lambda: None, first=True)
        secret, server = f"SECRET-{row.client}", float(self._generation)
        given_up = row.expires == -server
        return Lease(row.holder, row.epoch, secret, row.expires, expired, mine, server, given_up)

    async def renew(self) -> None:
        """See `SharedStore.renew`."""
        await self._durably(lambda: None)

    async def unapplied(self, limit: int) -> tuple[Delivery, ...]:
        """See `SharedStore.unapplied`."""
        waiting = await self._durably(
            lambda: [one for key, one in self.inbox.items() if key not in self.applied]
        )
        return tuple(waiting[:limit])

    def leads_for(self) -> Seconds:
        """See `Store.leads_for`."""
        return self._client.lease_time.left()

    async def accept(self, delivery: Delivery) -> bool:
        """Store a delivery, for any process. Return False if it was stored before."""
        return await self._transaction(lambda: self._keep(delivery))

    async def close(self) -> None:
        """Give up the lease, and close."""
        client = self._client
        epoch = client.epoch if client.lease_time.left() > 0.0 else None
        client.epoch, client.closed = None, True
        client.lease_time.lost()
        await count_call()
        held = (self.row.client, self.row.epoch) == (client.number, epoch)
        if held and not self._is_unreachable(client):
            self.row = self.row._replace(expires=-float(self._generation))

    async def _reach(self) -> None:
        client = self._client
        await count_call()
        await self._connect(client, RETRIES_FOR)
        self._refuse_late(client)
        sent_at = client.lease_time.now()
        self._renew(client)
        self._note_renewal(client, sent_at)

    async def _durably(self, write: Callable[[], T]) -> T:
        client = self._client
        if client.epoch is None and not client.closed:
            self._violated(f"replica {client.host} wrote, and never took the lease")
        return await self._transaction(write)

    async def _transaction(self, write: Callable[[], T], *, first: bool = False) -> T:
        """Carry a transaction out. `first`: it is the first renewal of a lease."""
        client = self._client
        await count_call()
        await self._connect(client, RETRIES_FOR)
        if not first:
            self._refuse_late(client)
        leads, sent_at = client.epoch is not None, client.lease_time.now()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        outside(
            lambda: asyncio.get_running_loop().call_later(
                self.latency, self._carry_out, client, write, done
            )
        )
        result = await done
        await count_call()
        if self._fault_schedule.hit(FaultKind.COMMIT_UNKNOWN) or self._is_unreachable(client):
            client.generation, client.expires = 0, math.nan
            raise StoreError("the connection was lost during COMMIT, so the outcome is unknown")
        if leads:
            self._note_renewal(client, sent_at)
        return result

    def _carry_out(
        self, client: Client, write: Callable[[], Any], done: asyncio.Future[Any]
    ) -> None:
        """Carry a transaction out at the server, also if its caller was cancelled."""
        if client.process.crash_point.reached.is_set():
            return
        try:
            self._begin(client)
            result = write()
        except StoreError as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    def _begin(self, client: Client) -> None:
        """Begin a transaction, with the renewal of a leader. Raises StoreError."""
        if client.closed or client.generation != self._generation:
            raise StoreError("the connection was lost")
        if self.failure is not None:
            raise self.failure
        if client.epoch is not None:
            self._renew(client)

    @staticmethod
    def _refuse_late(client: Client) -> None:
        """Raise StoreError if a leader is not sure to lead any more."""
        if client.epoch is not None and client.lease_time.left() <= 0.0:
            raise StoreError("the lease was not renewed in time")

    def _renew(self, client: Client) -> None:
        """Renew the lease of a client.

        Raises: StoreError if it does not have it, or if the server lacks its last transaction.
        """
        row = self.row
        if (row.client, row.epoch, row.expires) != (client.number, client.epoch, client.expires):
            client.lease_time.lost()
            raise StoreError(
                "another process took over the store, or its server lost a transaction"
            )
        client.expires = self._now() + LEASE_LENGTH
        self.row = row._replace(expires=client.expires)

    async def _connect(self, client: Client, tries_for: Seconds) -> None:
        """Connect again if the connection broke. Raises: StoreError if the server does not answer."""
        until = self._now() + tries_for
        while self._is_unreachable(client):
            client.generation = 0
            await asyncio.sleep(TRIES_EVERY)
            if self._now() >= until:
                raise StoreError("the server does not answer")
        client.generation = self._generation

    def _is_unreachable(self, client: Client) -> bool:
        return self._now() < max(self._down_until, self._cut_off_until.get(client.host, 0.0))

    def _take_over(self, client: Client) -> None:
        """Note a new leader, and check that no other one is sure to lead."""
        for other in self._clients.values():
            alive = not other.process.crash_point.reached.is_set()
            if other is not client and alive and other.lease_time.left() > 0.0:
                self._violated(f"replica {client.host} took a lease that replica {other.host} has")
        self.leader = client
        self.took_over()

    def _note_renewal(self, client: Client, sent_at: Seconds) -> None:
        """Report its renewal to a client, and check that it is not sure of a lease that another one took."""
        client.lease_time.renewed(sent_at)
        if client is not self.leader and client.lease_time.left() > 0.0:
            self._violated(f"replica {client.host} is sure of a lease that another one took")

    def _check_sender(self, client: Client) -> None:
        if client is not self.leader:
            self._violated(f"a request was sent by replica {client.host}, which does not lead")

    @property
    def _client(self) -> Client:
        process = calling()
        assert process is not None, "only a process uses a store that is shared"
        return self._clients[process]

    @staticmethod
    def _now() -> Instant:
        return EPOCH + asyncio.get_running_loop().time()
