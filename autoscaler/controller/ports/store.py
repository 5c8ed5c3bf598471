"""The port of the store, which keeps the ledger's records and providers' last readings durably.

The controller keeps the ledger in memory. The store gets whole records after each batch of events and
returns all of them at the start.
"""

import hashlib
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NewType, Protocol

from autoscaler.model.accounting import Usage
from autoscaler.model.changes import HistoryRow as HistoryRow
from autoscaler.model.changes import Record as Record
from autoscaler.model.cooldowns import Cooldown as Cooldown
from autoscaler.model.identifiers import Installations, Instant, JobId, ProviderName, Seconds
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
from autoscaler.model.prices_and_quotas import Reading, ReadingKind


class StoreError(Exception):
    """The store failed (disk full, read-only, corrupt) and stored nothing of the batch."""


DeliveryKey = NewType("DeliveryKey", bytes)
"""Identifies a delivery: the SHA-256 of its body. GitHub's signature covers the body, but not the delivery's
ID. So an old body that is sent again under a new ID is a duplicate, and cannot use up the ID of another
delivery."""


@dataclass(frozen=True)
class Delivery:
    """One webhook delivery as it arrived. `id` is X-GitHub-Delivery, `body` the raw bytes."""

    id: str
    event: str
    received_at: Instant
    body: bytes

    @cached_property
    def key(self) -> DeliveryKey:
        """The same for all redeliveries of this delivery, and for no other. Cached: it takes 10 us."""
        return DeliveryKey(hashlib.sha256(self.body).digest())


@dataclass(frozen=True, slots=True)
class SavedState:
    """All that the controller loads at its start. `heartbeat` is the time of the last stored heartbeat.

    All webhook deliveries up to `arrived_until` had arrived. `jobs`, `launch_requests`, `machines` and
    `runners` are those that have not ended, or that ended after the horizon given to `load`. Launch requests
    and runners of these machines are included. `reruns` are all reruns.
    """

    installations: Installations
    heartbeat: Instant | None
    jobs: tuple[Job, ...]
    launch_requests: tuple[LaunchRequest, ...]
    machines: tuple[Machine, ...]
    runners: tuple[Runner, ...]
    cooldowns: tuple[Cooldown, ...]
    unapplied: tuple[Delivery, ...]
    arrived_until: Instant | None = None
    reruns: tuple[Rerun, ...] = ()


class Store(Protocol):
    """The store. It has one writer. Every method raises StoreError and nothing else."""

    def leads_for(self) -> Seconds:
        """Return for how long (real time) no other process can write. Infinity if the store is not shared."""

    async def load(self, horizon: Instant) -> SavedState:
        """Return all records that have not ended, or ended after `horizon`, and those that belong to a machine.

        The first call on a new store creates the installation ID.
        """

    def accept(self, delivery: Delivery) -> Awaitable[bool]:
        """Store a webhook delivery. Return False if its key is known. Durable (fsync) when the future is done.

        Returns a future, because it costs less than a task, which a coroutine needs to outlive its caller.
        """

    async def commit(
        self,
        records: Sequence[Record],
        history: Sequence[HistoryRow],
        applied: Sequence[DeliveryKey] = (),
        cooldowns: Sequence[Cooldown] = (),
        installations: Installations | None = None,
        usage: Sequence[Usage] = (),
    ) -> None:
        """Write records with their history rows, and mark deliveries as applied, in one transaction.

        `installations` replaces the store's own ID and its former ones, if it is not None. `usage` is added to
        the stored sums of its days. The caller changes none of it afterwards: the journal passes copies of the
        records. Overlapping calls share one fsync. Durable on return.
        """

    async def record_heartbeat(self, at: Instant, arrived_until: Instant | None = None) -> None:
        """Store the time of this heartbeat, and until when all webhook deliveries have arrived.

        `arrived_until` None leaves the stored value unchanged.
        """

    async def find_job(self, job: JobId) -> Job | None:
        """Return a stored job, or None if its row was pruned."""

    async def history(
        self, kind: str, record: str, limit: int = 1000, until: Instant = math.inf
    ) -> tuple[HistoryRow, ...]:
        """Return the newest `limit` rows of one record that are not after `until`, oldest first."""

    async def usage(self, since: int) -> tuple[Usage, ...]:
        """Return the sums of what machines were used for since this day, over all days.

        There is one for each provider, SKU, repository and use, and its `day` is `since`.
        """

    async def prune(
        self, before: Instant, faults_before: Instant | None = None, usage_before: int = 0
    ) -> int:
        """Delete records that ended before this moment, with their history. Return the number deleted.

        The history of faults is kept until it is older than `faults_before`; None: `before`. The usage of days
        before `usage_before` is deleted, too.
        """

    async def load_readings(self, provider: ProviderName, kind: ReadingKind) -> tuple[Reading, ...]:
        """Return the stored readings of this provider and kind, by name."""

    async def save_readings(
        self, provider: ProviderName, kind: ReadingKind, readings: Sequence[Reading]
    ) -> None:
        """Replace all stored readings of this provider and kind. Durable on return."""

    async def close(self) -> None:
        """Finish the current transactions and release the file. Idempotent."""
