"""The ledger's state: the records, what else is known, and the changes that are not stored yet.

Records change only inside `changing`, which updates the indexes. Their states change only through `enter`,
which allows the transitions of the record's table.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Any

from autoscaler.ledger.records.class_cache import ClassCache
from autoscaler.ledger.records.indexes import IndexedRecords, Place
from autoscaler.model.catalogue import Catalogue, LaunchTokens, Offering, OperatingSystem
from autoscaler.model.changes import (
    INITIAL_STATES,
    Changes,
    HistoryRow,
    Record,
    UnlistedTransitionError,
    may_become,
)
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    Instant,
    JobId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Admission, Job, Question, RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.due import Due, due_of
from autoscaler.model.machines.evidence import StartEvidence
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
from autoscaler.model.operators import OperatorName, is_operator_hold, quarantine_of
from autoscaler.model.prices_and_quotas import ForeignUsage

_NOTHING = Changes()

Refuse = Callable[[UnlistedTransitionError], None]
"""What to do about a transition that is in no table. If it returns, the record keeps its state."""


def raise_unlisted(error: UnlistedTransitionError) -> None:
    """Raise the error. A transition that is in no table of `model/changes.py` is a mistake in the code."""
    raise error


@dataclass(slots=True)
class PassedOver:
    """Which idle runners of a group got no job of a repository, oldest first, and when to try one again."""

    runners: dict[RunnerName, DemandClass] = field(default_factory=dict)
    """With the class of the job that each of them did not get."""
    probe_at: Instant = 0.0


class LedgerState(IndexedRecords):
    """Records, indexes and unsaved changes. O(log n) for every change of one record."""

    def __init__(self, catalogue: Catalogue, refuse: Refuse = raise_unlisted) -> None:
        super().__init__(catalogue)
        self._refuse = refuse
        self._states: dict[int, Any] = {}
        """The states, as `enter` set them, of the records that `changing` is open for."""
        self.offerings: dict[str, Offering] = {}
        """By `Offering.key`, with the price for the operating system of one of the SKUs that have it."""
        self._priced: dict[tuple[OperatingSystem, str], Offering] = {}
        self.use_catalogue(catalogue)
        self.started_at: Instant = 0.0
        self.was_away: Seconds = 0.0
        self.cooldowns: dict[str, Cooldown] = {}
        self.operator_holds: dict[str, Cooldown] = {}
        """Those of the cooldowns that operators set and did not end."""
        self.foreign: dict[ProviderName, dict[ProviderMachineId, ListedMachine]] = {}
        self.foreign_before: dict[ProviderName, ForeignUsage] = {}
        """By provider that was not listed since the start, what the store has about foreign machines."""
        self.registration_levels: dict[str, tuple[float, Instant]] = {}
        self.launch_levels: dict[ProviderName, tuple[LaunchTokens, Instant]] = {}
        self.boot_seconds: dict[SkuName, Seconds] = {}
        self.quotas: dict[str, int] = {}
        self.machines_listed_at: dict[ProviderName, Instant] = {}
        self.created_since_start: set[MachineId] = set()
        self.runners_listed_at: dict[str, Instant] = {}
        self._all_runners_listed_at: Instant | None = None
        """When the oldest of the scopes' listings of runners began; None if that changed since."""
        self.reads: dict[JobId, Question] = {}
        self.run_origins: dict[int, RunOrigin] = {}
        self.run_questions: dict[int, Question] = {}
        self.ran_outside: set[RunnerName] = set()
        self.runner_groups: dict[tuple[str, str], tuple[RunnerGroup, Instant]] = {}
        """By scope and name, each runner group as GitHub showed it last, and when."""
        self.served_repositories: set[Place] = set()
        """Those of which GitHub has given a job to a runner of the group."""
        self.passed_over: dict[Place, PassedOver] = {}
        """Those that are not served. An entry outlives its jobs: new ones get no further runners."""

        self._touched: dict[tuple[str, str], Record] = {}
        self._history: list[HistoryRow] = []
        self._changed_cooldowns: dict[str, Cooldown] = {}
        self._adopted: Installations | None = None

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """Use another catalogue: machines are due as it says. Jobs keep their class. O(machines)."""
        self.catalogue = catalogue
        self._all_runners_listed_at = None
        self._classes = ClassCache(catalogue)
        self._priced = {
            (sku.os, offering.key): offering
            for sku in catalogue.skus.values()
            for option in sku.launch_options
            for offering in option.offerings
        }
        self.offerings = {key: offering for (_, key), offering in self._priced.items()}
        for machine in tuple(self.machines.values()):
            if self._due_at(machine) != machine.due:
                with self.changing(machine):
                    pass  # computes it again

    def offering(self, sku: SkuName, key: str) -> Offering | None:
        """Return an offering with its price for a SKU's operating system, or None if it is not known.

        Prices differ with the operating system. Cooldowns do not: a refusal of a Linux machine also stops the
        launches of Windows machines of the type in the zone, at most until the hold ends.
        """
        known = self.catalogue.skus.get(sku)
        priced = self._priced.get((known.os, key)) if known is not None else None
        return priced or self.offerings.get(key)

    def class_of(self, repository: str, labels: tuple[str, ...]) -> DemandClass | None:
        """Return the class of a job, whatever its run, from a cache."""
        return self._classes.class_of(repository, labels)

    def admit(self, job: Job) -> None:
        """Set a job's class and admission. The job must not be in the indexes."""
        if job.origin is None and job.run_id is not None:
            job.origin = self.run_origins.get(job.run_id)
        job.demand, job.admission = self.class_of(job.repository, job.labels), Admission.ADMITTED
        if job.demand is not None:
            job.demand, job.admission = self._classes.admit(job.demand, job.origin)

    @property
    def evidence(self) -> StartEvidence:
        """Return what the start and the listings since then prove about machines from before.

        O(1), because each change of a machine asks for it; O(scopes) after a new listing.
        """
        if self._all_runners_listed_at is None:
            begun = (self.runners_listed_at.get(scope.key, 0.0) for scope in self.catalogue.scopes)
            self._all_runners_listed_at = min(begun, default=0.0)
        return StartEvidence(
            self.started_at,
            self._all_runners_listed_at,
            self.machines_listed_at,
            self.created_since_start,
        )

    def _due_of(self, machine: Machine) -> tuple[Due, ...]:
        request = self.launch_requests.get(machine.launch_request)
        quarantine = quarantine_of(self.operator_holds, machine.id)
        return due_of(
            machine,
            self.catalogue.skus.get(machine.sku),
            request.option_in(self.catalogue) if request is not None else None,
            self.work_over_at(machine),
            quarantine.until if quarantine is not None else None,
            self.evidence,
        )

    def due_at(self, now: Instant) -> tuple[Due, ...]:
        """Return what is due now, in the order of `Machine.due`. O(machines due)."""
        machines = takewhile(lambda one: one.due <= now, self.due.values())
        found = ([due for due in self._due_of(one) if due.at <= now] for one in machines)
        return tuple(due[0] for due in found if due)

    def _due_at(self, machine: Machine) -> Instant | None:
        return min((due.at for due in self._due_of(machine)), default=None)

    def work_over_at(self, machine: Machine) -> Instant | None:
        """Return when GitHub reported that the job of a machine's runner is completed, or None."""
        runner = self.runner_of(machine)
        if runner is None or runner.job is None or runner.state is not RunnerState.DONE:
            return None
        return runner.since

    def note_runners_listed(self, scope: str, began_at: Instant) -> None:
        """Note when the newest complete listing of a scope's runners began."""
        self.runners_listed_at[scope] = began_at
        self._all_runners_listed_at = None

    def dispute(self, job: Job, at: Instant, why: str) -> None:
        """Mark a job as disputed: it is read at GitHub before a machine is launched for it."""
        with self.changing(job):
            job.disputed = True
        self.reads[job.id] = Question(at, at)
        self.note(job, at, "disputed", why)

    def note(
        self, record: Record, at: Instant, event: str, detail: str = "", code: str = ""
    ) -> None:
        """Add a row of history about a record."""
        kind, key = kind_and_key(record)
        self.note_row(HistoryRow(at, kind, key, event, detail[:500], code))

    def note_row(self, row: HistoryRow) -> None:
        """Add a row of history, also about a record that is not in memory."""
        self._history.append(row)

    def set_cooldown(self, cooldown: Cooldown) -> None:
        """Set a cooldown, or end one (with `until` in the past)."""
        self.restore_cooldown(cooldown)
        self._changed_cooldowns[cooldown.key] = cooldown

    def restore_cooldown(self, cooldown: Cooldown) -> None:
        """Set a cooldown that the store has already."""
        self.cooldowns[cooldown.key] = cooldown
        if is_operator_hold(cooldown.key):
            if cooldown.failures:
                self.operator_holds[cooldown.key] = cooldown
            else:
                self.operator_holds.pop(cooldown.key, None)

    def adopt_installation(
        self, installation: InstallationId, by: OperatorName, at: Instant
    ) -> None:
        """Use another installation's ID from now on. The previous ID becomes a former one."""
        before = self.catalogue.installations
        self._adopted = before.after_adoption(installation)
        self.use_catalogue(self.catalogue.with_installations(self._adopted))
        was = f"by {by}; was {before.own}"
        self.note_row(HistoryRow(at, "installation", installation, "adopted", was))

    def take_changes(self) -> Changes:
        """Return what changed since the last call."""
        if not (self._touched or self._history or self._changed_cooldowns or self._adopted):
            return _NOTHING
        changes = Changes(
            tuple(self._touched.values()),
            tuple(self._history),
            tuple(self._changed_cooldowns.values()),
            self._adopted,
        )
        self._touched, self._history, self._changed_cooldowns, self._adopted = {}, [], {}, None
        return changes

    @contextmanager
    def changing(self, record: Record) -> Iterator[None]:
        """Return a context in which the record's fields may change. Updates its indexes afterwards.

        It also computes when a machine is due.
        The state changes only through `enter`: a state that was assigned directly is taken back and refused.
        """
        self.unindex(record)
        self._states[id(record)] = record.state
        try:
            yield
        finally:
            found, record.state = record.state, self._states.pop(id(record))
            if isinstance(record, Machine):
                record.due = self._due_at(record)
            self.index(record)
            self._touched[kind_and_key(record)] = record
        if found is not record.state:
            self._refuse(UnlistedTransitionError(*kind_and_key(record), record.state, found))

    def enter(self, record: Record, to: StrEnum) -> bool:
        """Change a record's state. Return False if its table has no such transition. Call it inside `changing`.

        By default, a transition that is not in the table raises UnlistedTransitionError. `serve` logs it.
        """
        before = self._states[id(record)]
        if not may_become(record, to):
            self._refuse(UnlistedTransitionError(*kind_and_key(record), before, to))
            return False
        record.state = self._states[id(record)] = to  # type: ignore[assignment]
        return True

    def add(self, record: Record, *, stored: bool = False) -> None:
        """Add a record. `stored`: it comes from the store and need not be saved.

        A new record that begins in a state in which none may begin is refused.
        """
        if not stored and record.state not in INITIAL_STATES[type(record)]:
            self._refuse(UnlistedTransitionError(*kind_and_key(record), None, record.state))
            return
        if isinstance(record, Machine) and not stored:
            record.due = self._due_at(record)
        self._records_like(record)[_key(record)] = record
        self.index(record)
        if not stored:
            self._touched[kind_and_key(record)] = record

    def touch(self, record: Record) -> None:
        """Save a record that changed outside `changing`."""
        self._touched[kind_and_key(record)] = record

    def drop(self, record: Record) -> None:
        """Remove a record from memory. Its row stays in the store."""
        self.unindex(record)
        del self._records_like(record)[_key(record)]

    def _records_like(self, record: Record) -> dict[Any, Any]:
        """Return all records of a record's kind, by key."""
        records: dict[Any, Any] = getattr(self, _KINDS[type(record)][2])
        return records


_KINDS: dict[type[Record], tuple[str, str, str]] = {
    Job: ("job", "id", "jobs"),
    LaunchRequest: ("launch_request", "id", "launch_requests"),
    Machine: ("machine", "id", "machines"),
    Rerun: ("rerun", "job", "reruns"),
    Runner: ("runner", "name", "runners"),
}
"""Of each kind of record: its name in the history, the field that is its key, and where the records are."""


def _key(record: Record) -> Any:
    return getattr(record, _KINDS[type(record)][1])


def kind_and_key(record: Record) -> tuple[str, str]:
    """Return a record's kind, as in the history, and its key as text."""
    return _KINDS[type(record)][0], str(_key(record))
