"""Several replicas of the controller, in place of one supervised process."""

import asyncio
import itertools
from collections.abc import Callable

from autoscaler.controller.intake.deliveries import Parse
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Delivery
from autoscaler.controller.replicas.leading import is_of_store
from autoscaler.controller.system import ClockSetBackError
from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.controller.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.controller.replica import SimulatedReplica
from autoscaler.simulator.world.controller.shared_store import SharedMemoryStore
from autoscaler.simulator.world.controller.supervisor import DOWN
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.processes import Process
from autoscaler.simulator.world.schedule import Fault, FaultKind
from autoscaler.simulator.world.virtual_time import VirtualLoop

LEADS_WITHIN: Seconds = 20.0
"""Seconds after the last fault within which one replica leads."""

OF_REPLICAS = frozenset(
    {
        FaultKind.LEADER_PAUSED,
        FaultKind.LEADER_STOPPED,
        FaultKind.FOLLOWER_KILLED,
        FaultKind.STORE_CUT_OFF,
        FaultKind.STORE_DOWN,
        FaultKind.STORE_FAILOVER,
    }
)
"""The faults that replicas begin at one moment."""

_LOOKS_EVERY: Seconds = 1.0


class Replicas:
    """Runs the replicas of a world.

    `rewound` is called after a server took over that lacks the last second. Webhooks and machines' requests
    reach one replica after another, from that of the `seed` on.
    """

    def __init__(
        self,
        count: int,
        seed: int,
        store: SharedMemoryStore,
        fault_schedule: FaultSchedule,
        make: Callable[[Process, int], ControllerProcess],
        clock: Callable[[int], Clock],
        parse: Parse,
        failed: Callable[[str], None],
        rewound: Callable[[], None],
    ) -> None:
        self.rewound_at: Seconds | None = None
        self.replicas = [
            SimulatedReplica(n, store, make, clock, parse) for n in range(1, count + 1)
        ]
        self._store = store
        self._fault_schedule = fault_schedule
        self._failed = failed
        self._rewound = rewound
        self._turns = itertools.count(seed)
        self._down_until = dict.fromkeys(self.replicas, 0.0)

    @property
    def process(self) -> ControllerProcess | None:
        """Return the controller of the replica that took the lease last, or None."""
        leader = self._leader
        return None if leader is None else leader.controller

    def current(self) -> ControllerProcess:
        """Return the controller that a request reaches. Raises ProcessGoneError.

        A replica that follows passes a request on to the one that it saw leading.
        """
        asked = self._next()
        lease = asked.follower.lease if asked.follower is not None else None
        named = [
            one for one in self.replicas if lease is not None and one.name == lease.holder.name
        ]
        for replica in (asked, *named):
            if replica.controller is not None and not replica.controller.gone:
                return replica.controller
        raise ProcessGoneError

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver a webhook to some replica. Raises ProcessGoneError, StoreError."""
        await self._next().deliver(delivery)

    async def run(self) -> None:
        """Run all replicas until cancelled, which kills them."""
        async with asyncio.TaskGroup() as group:
            for replica in self.replicas:
                group.create_task(self._run(replica))
            group.create_task(self._look_for_leader())

    def begin(self, fault: Fault) -> None:
        """Begin a fault of the leader, or of the store."""
        leader = self._leader
        match fault.kind:
            case FaultKind.STORE_DOWN:
                self._store.go_down(fault)
            case FaultKind.STORE_FAILOVER:
                self._store.fail_over(fault)
                self.rewound_at = self._fault_schedule.time
                self._rewound()
            case FaultKind.STORE_CUT_OFF if fault.target or leader is not None:
                count = len(self.replicas)
                host = (fault.target - 1) % count + 1 if fault.target else _number(leader)
                self._store.cut_off(host, fault.lasts)
            case FaultKind.LEADER_STOPPED if leader is not None:
                self._down_until[leader] = fault.until
                leader.stop()
            case FaultKind.FOLLOWER_KILLED:
                followers = [one for one in self.replicas if one is not leader]
                follower = followers[fault.target % len(followers)]
                self._down_until[follower] = fault.until
                follower.process.crash_point.reached.set()
            case FaultKind.LEADER_PAUSED if leader is not None:
                process = leader.process
                process.crash_point.arm(fault.target, lambda: self._pause(process, fault))
                return  # it hits once the process pauses
            case _:
                return
        self._fault_schedule.hits[fault.kind] += 1

    def crash(self, fault: Fault, calls: int) -> None:
        """Kill the leader after `calls` more calls of its ports."""
        leader = self._leader
        if leader is not None:
            leader.process.crash_point.arm(calls)
            self._down_until[leader] = fault.until
            self._fault_schedule.hits[fault.kind] += 1

    def back_up(self, fault: Fault) -> None:
        """Keep what a server that takes over in this fault has."""
        self._store.keep(fault)

    def restore(self, fault: Fault) -> None:
        """Raise ValueError: a store is restored while no replica runs."""
        raise ValueError(f"{fault.kind} in a world with replicas")

    @property
    def _leader(self) -> SimulatedReplica | None:
        leader = self._store.leader
        return None if leader is None else self.replicas[leader.host - 1]

    def _next(self) -> SimulatedReplica:
        return self.replicas[next(self._turns) % len(self.replicas)]

    def _pause(self, process: Process, fault: Fault) -> None:
        left = fault.until - self._fault_schedule.time
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if left > 0.0:
            loop.pause(process, left)
            self._fault_schedule.hits[fault.kind] += 1

    async def _run(self, replica: SimulatedReplica) -> None:
        try:
            while True:
                await self._run_one(replica)
                down = self._down_until[replica] - self._fault_schedule.time
                await asyncio.sleep(max(DOWN, down))
        finally:
            await replica.kill()

    async def _run_one(self, replica: SimulatedReplica) -> None:
        replica.start()
        assert replica.running is not None
        gone = asyncio.ensure_future(replica.process.crash_point.reached.wait())
        try:
            await asyncio.wait({replica.running, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        running = replica.running
        await replica.kill()
        error = running.exception() if running.done() and not running.cancelled() else None
        if (
            error is not None
            and not isinstance(error, ClockSetBackError)
            and not is_of_store(error)
        ):
            self._failed(f"the controller failed: {type(error).__name__}: {error}")

    async def _look_for_leader(self) -> None:
        """Check that a replica leads soon after each fault, and from then on."""
        since = self._fault_schedule.time
        while True:
            await asyncio.sleep(_LOOKS_EVERY)
            now, calm = self._fault_schedule.time, self._fault_schedule.calm_for
            if any(replica.leads for replica in self.replicas):
                since = now
            elif calm is not None and min(calm, now - since) > LEADS_WITHIN:
                self._failed(f"no replica leads {LEADS_WITHIN:g} s after the last fault")


def _number(replica: SimulatedReplica | None) -> int:
    return 0 if replica is None else replica.number
