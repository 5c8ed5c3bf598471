"""What applying events leaves behind to be stored: changed records, history rows, cooldowns."""

from dataclasses import dataclass

from autoscaler.model.calls import Call
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import Instant
from autoscaler.model.installations import Installations
from autoscaler.model.interruptions import Rerun
from autoscaler.model.jobs import Job
from autoscaler.model.machines import Machine
from autoscaler.model.runners import Runner

Record = Job | Call | Machine | Runner | Rerun


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """What happened to one record and why. `kind` is job, call, machine or runner; a rerun is its job's.

    What happened to the whole is of the kind installation, under its id, or sku, under its name.
    """

    at: Instant
    kind: str
    record: str
    event: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that changed since the last taking; records are the live ones, not copies."""

    records: tuple[Record, ...] = ()
    history: tuple[HistoryRow, ...] = ()
    cooldowns: tuple[Cooldown, ...] = ()
    installations: Installations | None = None
    """Where an id was taken over, all from then on."""

    def __bool__(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.records or self.history or self.cooldowns or self.installations)
