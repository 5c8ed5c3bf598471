"""Checks what a process must have stored a moment after a complete list of a cluster's pods."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.cluster.nodes import ENDED
from autoscaler.simulator.world.cluster.pods import Pod, SimulatedCluster
from autoscaler.simulator.world.cluster.registry import Object
from autoscaler.simulator.world.processes import Process, calling

STORED_WITHIN: Seconds = 10.0
"""Seconds after a complete list within which a process stores the events of the list, even in a slow store."""


class Listing(NamedTuple):
    """What a list that begins now will show of pods that still exist at its end."""

    began_at: Instant
    ended: frozenset[Pod]
    waiting: frozenset[Pod]


class PodLists:
    """The complete lists of a cluster's pods that one process gets. Create it when the process starts.

    `pending_timeout` is how long a pod may wait for a node, by the process's clock. It is 0 without a
    provisioner. The wait counts from the first complete list that shows it: a launch request may have had no
    answer before, and the list then binds its pods.
    """

    def __init__(self, cluster: SimulatedCluster, clock: Clock, pending_timeout: Seconds) -> None:
        self._cluster = cluster
        self._clock = clock
        self._timeout = pending_timeout
        self._before = {instance for instance, _ in cluster.existing}
        self._seen: dict[Pod, Instant] = {}

    def begin(self) -> Listing:
        """Return what the list that begins now will show."""
        ended = {one for one, pod in self._cluster.existing if pod["status"]["phase"] in ENDED}
        return Listing(self._clock.now(), frozenset(ended), self._waiting())

    def complete(self, listing: Listing) -> None:
        """Check, a moment later, what follows from a list that was complete."""
        existing = {instance for instance, _ in self._cluster.existing}
        waiting = listing.waiting & self._waiting()
        overdue = [
            one
            for one in waiting
            if one in self._seen and listing.began_at - self._seen[one] >= self._timeout
        ]
        for one in waiting:
            self._seen.setdefault(one, self._clock.now())
        asyncio.get_running_loop().call_later(
            STORED_WITHIN, self._check, listing.ended & existing, overdue, calling()
        )

    def _waiting(self) -> frozenset[Pod]:
        """Return the pods that no node has room for.

        After a restart, a pod from before may have got an assignment that the store does not know.
        """
        return frozenset(
            one
            for one, pod in self._cluster.existing
            if one not in self._before and _is_unschedulable(pod)
        )

    def _check(self, ended: Iterable[Pod], overdue: Iterable[Pod], process: Process | None) -> None:
        if process is not None and process.crash_point.reached.is_set():
            return
        for one in sorted(ended, key=lambda pod: pod.id):
            self._cluster.invariants.shown_as_ended(one)
        for one in sorted(overdue, key=lambda pod: pod.id):
            self._cluster.invariants.shown_as_waiting(one)


def _is_unschedulable(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return "nodeName" not in pod["spec"] and any(
        one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions
    )
