"""Merges the changes of one transaction, in the order of their calls.

The last write to a row wins. A change is created on the event loop, and added to a batch in the store's
thread. `statements` writes the batch to the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autoscaler.controller.ports.store import Cooldown, DeliveryKey, HistoryRow, Record
from autoscaler.model.accounting import Usage
from autoscaler.model.identifiers import Installations, Instant
from autoscaler.store.rows import (
    Arrival,
    Row,
    cooldown_row,
    history_row,
    name,
    record_row,
    usage_row,
)
from autoscaler.store.tables import Table


@dataclass(frozen=True, slots=True)
class Decision:
    """Changed records with their history, applied deliveries, cooldowns and usage: one atomic change."""

    records: Sequence[Record] = ()
    history: Sequence[HistoryRow] = ()
    applied: Sequence[DeliveryKey] = ()
    cooldowns: Sequence[Cooldown] = ()
    installations: Installations | None = None
    usage: Sequence[Usage] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat: the controller was running at this moment."""

    at: Instant
    arrived_until: Instant | None = None


Change = Arrival | Decision | Heartbeat


@dataclass(slots=True)
class Batch:
    """The merged changes of one transaction."""

    inbox: dict[DeliveryKey, Arrival] = field(default_factory=dict)
    applied: dict[DeliveryKey, None] = field(default_factory=dict)
    records: dict[Table, dict[object, Row]] = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)
    cooldowns: dict[object, Row] = field(default_factory=dict)
    usage: list[Row] = field(default_factory=list)
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
                self.inbox[change.key] = change
            case Decision():
                self._add_decision(change)
            case Heartbeat():
                self.heartbeat = change.at
                if change.arrived_until is not None:
                    self.arrived_until = change.arrived_until
        return True

    def _add_decision(self, decision: Decision) -> None:
        """Add the rows of a decision, about 30 us for each machine, which is why this runs in the thread."""
        for one in decision.installations.all if decision.installations is not None else ():
            name(one, "installation")
        records = [record_row(one) for one in decision.records]
        history = [history_row(one) for one in decision.history]
        cooldowns = [cooldown_row(one) for one in decision.cooldowns]
        usage = [usage_row(one) for one in decision.usage]
        # All values can be stored: from here on nothing is raised.
        for table, row in records:
            self.records.setdefault(table, {})[row[table.key]] = row
        self.history += history
        self.usage += usage
        for delivery in decision.applied:
            self.applied[delivery] = None
            if delivery in self.inbox:
                self.inbox[delivery] = self.inbox[delivery]._replace(applied=True)
        for row in cooldowns:
            self.cooldowns[row["key"]] = row
        self.installations = decision.installations or self.installations
