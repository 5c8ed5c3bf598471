"""Merges the changes of one transaction, in the order of their calls.

The last write to a row wins. A change is created on the event loop, and added to a batch in the store's
thread. `statements` writes the batch to the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Table

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
)
from autoscaler.model.changes import copied
from autoscaler.model.identifiers import Instant
from autoscaler.model.installations import Installations
from autoscaler.store.rows import (
    InboxRow,
    Row,
    cooldown_row,
    delivery_row,
    history_row,
    moment,
    name,
    record_row,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One webhook delivery to store."""

    row: InboxRow

    @classmethod
    def of(cls, delivery: Delivery) -> "Arrival":
        """Raises: StoreError if it cannot be stored."""
        return cls(delivery_row(delivery))

    @property
    def key(self) -> DeliveryKey:
        """The delivery's key."""
        return self.row.key


@dataclass(frozen=True, slots=True)
class Decision:
    """Changed records with their history, applied deliveries and cooldowns: one atomic change."""

    records: tuple[Record, ...]
    history: tuple[HistoryRow, ...]
    applied: tuple[DeliveryKey, ...]
    cooldowns: tuple[Cooldown, ...]
    installations: Installations | None = None

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        history: Sequence[HistoryRow],
        applied: Sequence[DeliveryKey],
        cooldowns: Sequence[Cooldown],
        installations: Installations | None = None,
    ) -> "Decision":
        """Return a decision with copies of these records. `rows` checks later that each value can be stored."""
        return cls(
            tuple(map(copied, records)),
            tuple(history),
            tuple(applied),
            tuple(cooldowns),
            installations,
        )

    def rows(self) -> "DecisionRows":
        """Return the rows to write. Takes 30 us per machine, so it is called in the store's thread.

        Raises: StoreError if a value cannot be stored.
        """
        for one in self.installations.all if self.installations is not None else ():
            name(one, "installation")
        return DecisionRows(
            records=tuple(map(record_row, self.records)),
            history=tuple(map(history_row, self.history)),
            cooldowns=tuple(map(cooldown_row, self.cooldowns)),
        )


@dataclass(frozen=True, slots=True)
class DecisionRows:
    """The rows of a decision: records, history and cooldowns."""

    records: tuple[tuple[Table, Row], ...]
    history: tuple[Row, ...]
    cooldowns: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat: the controller was running at this moment."""

    at: Instant
    arrived_until: Instant | None = None

    @classmethod
    def of(cls, at: Instant, arrived_until: Instant | None = None) -> "Heartbeat":
        """Raises: StoreError if it cannot be stored."""
        until = None if arrived_until is None else moment(arrived_until, "arrived_until")
        return cls(moment(at, "heartbeat"), until)


Change = Arrival | Decision | Heartbeat


@dataclass(slots=True)
class Batch:
    """The merged changes of one transaction."""

    inbox: dict[DeliveryKey, InboxRow] = field(default_factory=dict)
    applied: dict[DeliveryKey, None] = field(default_factory=dict)
    records: dict[Table, dict[object, Row]] = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)
    cooldowns: dict[object, Row] = field(default_factory=dict)
    installations: Installations | None = None
    heartbeat: Instant | None = None
    arrived_until: Instant | None = None

    def add(self, change: Change) -> bool:
        """Add a change. Return False for a delivery that is already in the batch.

        Raises: StoreError if it cannot be stored. Then the batch is unchanged.
        """
        match change:
            case Arrival():
                if change.key in self.inbox:
                    return False
                self.inbox[change.key] = change.row
            case Decision():
                self._add_decision(change)
            case Heartbeat():
                self.heartbeat = change.at
                if change.arrived_until is not None:
                    self.arrived_until = change.arrived_until
        return True

    def _add_decision(self, decision: Decision) -> None:
        rows = decision.rows()
        for table, row in rows.records:
            key = row[next(iter(table.primary_key)).name]
            self.records.setdefault(table, {})[key] = row
        self.history.extend(rows.history)
        for key in decision.applied:
            self.applied[key] = None
            if key in self.inbox:
                self.inbox[key] = self.inbox[key]._replace(applied=True)
        for row in rows.cooldowns:
            self.cooldowns[row["key"]] = row
        self.installations = decision.installations or self.installations
