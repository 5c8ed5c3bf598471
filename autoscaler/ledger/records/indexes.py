"""The records in memory, and the indexes that planning needs. The indexes depend on the records alone.

A record's fields may change only between `unindex` and `index`.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sortedcontainers import SortedDict, SortedList

from autoscaler.ledger.records.activity import Activity
from autoscaler.ledger.records.class_cache import ClassCache
from autoscaler.ledger.records.costs import SpotCosts
from autoscaler.ledger.records.entries import count, put, put_in
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.changes import Record
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.access_rules import depends_on_run
from autoscaler.model.jobs.demand import DemandClass, scope_of
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.jobs.runners import IDLE_STATES, Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import BOOTING_STATES, DAY, Machine, MachineState
from autoscaler.model.reasons.table import Unmatched

_WITHDRAWABLE = frozenset({RunnerState.NAMED, RunnerState.REGISTERED})

ON_HOLD_AFTER = 2
"""A job is on hold after GitHub passed over this many different runners for it."""


def is_on_hold(job: Job) -> bool:
    """Return True if the job is on hold because GitHub gives it to no runner of its group."""
    return job.probe_at is not None


Place = tuple[str, str, str]
"""Scope, runner group and repository: what GitHub compares to decide whether a group admits a repository."""


def place_of(job: Job, demand: DemandClass) -> Place:
    """Return where GitHub looks for a runner for a job."""
    return demand.scope, demand.runner_group, job.repository.lower()


@dataclass(eq=False)
class IndexedRecords:
    """The records by key, and their indexes. A change of a record costs O(log n)."""

    catalogue: Catalogue
    jobs: dict[JobId, Job] = field(default_factory=dict)
    launch_requests: dict[LaunchRequestId, LaunchRequest] = field(default_factory=dict)
    machines: dict[MachineId, Machine] = field(default_factory=dict)
    runners: dict[RunnerName, Runner] = field(default_factory=dict)
    reruns: dict[JobId, Rerun] = field(default_factory=dict)

    queues: dict[DemandClass, Any] = field(default_factory=dict)
    waiting: Any = field(default_factory=SortedList)
    on_hold: dict[DemandClass, dict[JobId, Job]] = field(default_factory=dict)
    jobs_passed_over: dict[Place, dict[JobId, Job]] = field(default_factory=dict)
    """Queued jobs that are on hold or have marks, also disputed ones."""
    open_launch_requests: dict[LaunchRequestId, LaunchRequest] = field(default_factory=dict)
    by_state: dict[tuple[SkuName, MachineState], Any] = field(default_factory=dict)
    by_provider_id: dict[ProviderMachineId, MachineId] = field(default_factory=dict)
    due: Any = field(default_factory=SortedDict)
    idle_runners: Counter[DemandClass] = field(default_factory=Counter)
    deregistrable: dict[DemandClass, dict[RunnerName, Runner]] = field(default_factory=dict)
    idle_checks: Any = field(default_factory=SortedDict)
    prunable: Any = field(default_factory=SortedDict)
    expiring: Any = field(default_factory=SortedDict)
    rerun_due: Any = field(default_factory=SortedDict)
    reruns_of_run: dict[int, dict[JobId, Rerun]] = field(default_factory=dict)
    in_progress: Counter[SkuName] = field(default_factory=Counter)
    disputed: Counter[DemandClass] = field(default_factory=Counter)
    unadmitted: Counter[tuple[DemandClass, Admission]] = field(default_factory=Counter)
    unmatched: dict[Unmatched, Any] = field(
        default_factory=lambda: {reason: SortedDict() for reason in Unmatched}
    )
    unread: dict[int, dict[JobId, Job]] = field(default_factory=dict)
    deregistering: Counter[SkuName] = field(default_factory=Counter)
    activity: Activity = field(default_factory=Activity)
    unverified: int = 0
    """Machines that may run a job and that no operator has released (`is_unverified`)."""
    not_terminating: int = 0
    """Machines that still exist after several requests to terminate them."""
    unverified_existing: int = 0
    """Unverified machines that still exist, also those that an operator released or that exited."""
    booting: dict[tuple[SkuName, int], dict[MachineId, None]] = field(default_factory=dict)
    boots: dict[SkuName, Counter[Instant]] = field(default_factory=dict)
    ready_unseen: Counter[SkuName] = field(default_factory=Counter)
    registrations: Counter[tuple[SkuName, RunnerState]] = field(default_factory=Counter)
    """Registrations that are not over."""
    runners_without_job: Counter[SkuName] = field(default_factory=Counter)
    queues_by_repository: dict[DemandClass, dict[str, Any]] = field(default_factory=dict)
    running: Counter[tuple[SkuName, str]] = field(default_factory=Counter)
    """Running jobs of SKUs with a fair share, by SKU and repository."""
    awaiting_approval: Counter[SkuName] = field(default_factory=Counter)
    """Jobs that GitHub holds back, for example until an environment is approved."""
    _queued: dict[SkuName, Any] = field(default_factory=dict)
    machines_used: int = 0
    dollars_used: float = 0.0
    spot_costs: SpotCosts = field(default_factory=SpotCosts)
    used_by_sku: Counter[SkuName] = field(default_factory=Counter)
    used_by_quota: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Start with an empty cache of classes."""
        self._classes = ClassCache(self.catalogue)

    def index(self, record: Record) -> None:
        """Add a record to the indexes."""
        self._put(record, 1)

    def unindex(self, record: Record) -> None:
        """Remove a record from the indexes. Its fields must be the same as when it was added."""
        self._put(record, -1)

    def _put(self, record: Record, sign: int) -> None:
        if isinstance(record, Machine):
            self._put_machine(record, sign)
        elif isinstance(record, Job):
            self._put_job(record, sign)
        elif isinstance(record, Runner):
            self._put_runner(record, sign)
        elif isinstance(record, Rerun):
            self._put_rerun(record, sign)
        elif record.state is not LaunchRequestState.SETTLED:
            put(self.open_launch_requests, record.id, record, sign)

    def _put_job(self, job: Job, sign: int) -> None:
        # A job is removed under every key that depends on more than its own fields.
        self.activity.count(job, sign)
        if job.state is JobState.COMPLETED:
            put(self.prunable, (job.completed_at or job.updated_at, "job", job.id), job, sign)
        if job.expires_at is not None:
            put(self.expiring, (job.expires_at, job.id), job, sign)
        if job.run_id is not None and (sign < 0 or self._is_unread(job)):
            put_in(self.unread, job.run_id, job.id, job, sign)
        if job.demand is None:
            if job.state is JobState.QUEUED:
                self._put_unmatched(job, sign)
            return
        sku = job.demand.skus[0]
        if job.state is JobState.WAITING:
            self.awaiting_approval[sku] += sign
        elif job.state is JobState.IN_PROGRESS:
            self.in_progress[sku] += sign
            if self._is_shared(sku):
                count(self.running, (sku, job.repository.lower()), sign)
        elif job.state is JobState.QUEUED:
            self._put_queued(job, job.demand, sign)

    def _put_unmatched(self, job: Job, sign: int) -> None:
        why = self._classes.why_unmatched(job.repository, job.labels) if sign > 0 else None
        for reason, jobs in self.unmatched.items():
            if sign < 0 or reason is why:
                put(jobs, (job.queued_at, job.id), job, sign)

    def _put_queued(self, job: Job, demand: DemandClass, sign: int) -> None:
        key, sku = (job.queued_at, job.id), demand.skus[0]
        if job.passed_over or is_on_hold(job):
            put_in(self.jobs_passed_over, place_of(job, demand), job.id, job, sign)
        if not job.admission.is_refusal:
            put_in(self._queued, sku, key, None, sign, SortedDict)
        if job.disputed and not job.admission.is_refusal:
            count(self.disputed, demand, sign)
        elif job.admission is not Admission.ADMITTED:
            count(self.unadmitted, (demand, job.admission), sign)
        elif is_on_hold(job):
            put_in(self.on_hold, demand, job.id, job, sign)
        else:
            put_in(self.queues, demand, key, job, sign, SortedDict)
            (self.waiting.add if sign > 0 else self.waiting.remove)((job.queued_at, demand, job.id))
            if sign < 0 or self._is_shared(sku):
                queues = self.queues_by_repository.setdefault(demand, {})
                put_in(queues, job.repository.lower(), key, job, sign, SortedDict)
                if not queues:
                    del self.queues_by_repository[demand]

    def oldest_queued(self, sku: SkuName) -> Instant | None:
        """Return when the oldest waiting job of a SKU was queued. See `waiting_for`."""
        queued = self._queued.get(sku)
        return queued.peekitem(0)[0][0] if queued else None

    def waiting_for(self, sku: SkuName) -> int:
        """Return the number of queued jobs of a SKU, also those on hold and those that GitHub is asked about.

        A job that `access` refuses waits for no machine. The refusal itself was counted.
        """
        return len(self._queued.get(sku, ()))

    def runner_of(self, machine: Machine) -> Runner | None:
        """Return the runner whose registration a machine has, or None if it has none."""
        return self.runners.get(machine.work.runner) if machine.work.runner is not None else None

    def runner_and_machine(self, job: Job) -> tuple[Runner | None, Machine | None]:
        """Return the runner that GitHub named for a job, and its machine, as far as they are known."""
        runner = self.runners.get(job.runner_name) if job.runner_name is not None else None
        return runner, self.machines.get(runner.machine) if runner is not None else None

    def _is_shared(self, sku: SkuName) -> bool:
        """Return True if a SKU has a fair share."""
        known = self.catalogue.skus.get(sku)
        return known is not None and known.share is not None

    def _is_unread(self, job: Job) -> bool:
        """Return True if the job's run must be read, to admit the job or to check its SKU."""
        if job.origin is not None:
            return False
        if job.admission is Admission.UNREAD and job.state is not JobState.COMPLETED:
            return True
        _, machine = self.runner_and_machine(job)
        sku = self.catalogue.skus.get(machine.sku) if machine is not None else None
        if sku is None or not depends_on_run(sku.access):
            return False
        return scope_of(self.catalogue, job.repository) is not None

    def _put_machine(self, machine: Machine, sign: int) -> None:
        place, key = machine.placement, (machine.sku, machine.state)
        ordered = self.by_state.get(key)
        if ordered is None:
            ordered = self.by_state[key] = SortedDict()
        put(ordered, (machine.since, machine.id), machine, sign)
        self.spot_costs.count(machine, sign)
        if machine.due is not None:
            put(self.due, (machine.due, machine.id), machine, sign)
        if place.provider_id is not None:
            put(self.by_provider_id, place.provider_id, machine.id, sign)
        if machine.occupies:
            self.count_use(machine.sku, place.dollars_per_hour, place.quota_usage, sign)
        else:
            put(self.prunable, (machine.prunable_from, "machine", machine.id), machine, sign)
        self.unverified += sign if machine.is_unverified else 0
        self.not_terminating += sign if machine.does_not_terminate else 0
        self.unverified_existing += sign if machine.work.unverified and machine.occupies else 0
        if machine.state is MachineState.READY and not machine.work.agent_seen:
            self.ready_unseen[machine.sku] += sign
        if machine.state in BOOTING_STATES:
            count(self.boots.setdefault(machine.sku, Counter()), machine.created_at, sign)
            if (request := self.launch_requests.get(machine.launch_request)) is not None:
                booting = self.booting.setdefault((machine.sku, request.option), {})
                put(booting, machine.id, None, sign)

    def count_use(
        self, sku: SkuName, dollars: float, quota_usage: tuple[tuple[str, int], ...], number: int
    ) -> None:
        """Count this many more machines against the limits (fewer if negative), also of other installations.

        `dollars` and `quota_usage` are of one machine.
        """
        self.machines_used += number
        self.dollars_used += number * dollars
        self.used_by_sku[sku] += number
        for quota, units in quota_usage:
            self.used_by_quota[quota] += number * units
        if not self.machines_used:
            self.dollars_used = 0.0  # rounding errors must not add up over months

    def _put_runner(self, runner: Runner, sign: int) -> None:
        # Only a registration that is over outlives its machine.
        machine = self.machines.get(runner.machine)
        if machine is not None and runner.state is not RunnerState.DONE:
            self.registrations[machine.sku, runner.state] += sign
        if machine is not None and runner.state is RunnerState.DEREGISTERING:
            self.deregistering[machine.sku] += sign
        if runner.state in IDLE_STATES and not runner.passed_over:
            if machine is not None:
                self.runners_without_job[machine.sku] += sign
            count(self.idle_runners, runner.demand, sign)
            if runner.retry_at is not None:
                put(self.idle_checks, (runner.retry_at, runner.name), runner, sign)
        if runner.state in _WITHDRAWABLE and runner.configuration_sent_at is None:
            put_in(self.deregistrable, runner.demand, runner.name, runner, sign)

    def _put_rerun(self, rerun: Rerun, sign: int) -> None:
        put_in(self.reruns_of_run, rerun.run_id, rerun.job, rerun, sign)
        if rerun.due is not None:
            put(self.rerun_due, (rerun.due, rerun.job), rerun, sign)
        if rerun.ended_at is not None:
            # The run's budget counts its earlier reruns.
            put(self.prunable, (rerun.ended_at + 3.0 * DAY, "rerun", rerun.job), rerun, sign)
