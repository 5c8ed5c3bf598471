"""The records in memory, and the indexes that planning needs. The indexes depend on the records alone.

A record's fields may change only between `unindex` and `index`.
"""

from collections import Counter
from typing import Any, TypeVar

from sortedcontainers import SortedDict, SortedList

from autoscaler.ledger.records.activity import Activity
from autoscaler.ledger.records.class_cache import ClassCache
from autoscaler.ledger.records.costs import SpotCosts
from autoscaler.ledger.records.counters import Counters
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
from autoscaler.model.machines.machine import DAY, Machine, MachineState
from autoscaler.model.reasons.table import Unmatched

_WITHDRAWABLE = frozenset({RunnerState.NAMED, RunnerState.REGISTERED})

Counted = TypeVar("Counted")

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


class IndexedRecords:
    """The records by key, and their indexes. A change of a record costs O(log n)."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._classes = ClassCache(catalogue)
        self.jobs: dict[JobId, Job] = {}
        self.launch_requests: dict[LaunchRequestId, LaunchRequest] = {}
        self.machines: dict[MachineId, Machine] = {}
        self.runners: dict[RunnerName, Runner] = {}
        self.reruns: dict[JobId, Rerun] = {}

        self.queues: dict[DemandClass, Any] = {}
        self.waiting: Any = SortedList()
        self.on_hold: dict[DemandClass, dict[JobId, Job]] = {}
        self.jobs_passed_over: dict[Place, dict[JobId, Job]] = {}
        """Queued jobs that are on hold or have marks, also disputed ones."""
        self.open_launch_requests: dict[LaunchRequestId, LaunchRequest] = {}
        self.by_state: dict[tuple[SkuName, MachineState], Any] = {}
        self.by_provider_id: dict[ProviderMachineId, MachineId] = {}
        self.due: Any = SortedDict()
        self.idle_runners: Counter[DemandClass] = Counter()
        self.deregistrable: dict[DemandClass, dict[RunnerName, Runner]] = {}
        self.idle_checks: Any = SortedDict()
        self.prunable: Any = SortedDict()
        self.expiring: Any = SortedDict()
        self.rerun_due: Any = SortedDict()
        self.reruns_of_run: dict[int, dict[JobId, Rerun]] = {}
        self.in_progress: Counter[SkuName] = Counter()
        self.disputed: Counter[DemandClass] = Counter()
        self.unadmitted: Counter[tuple[DemandClass, Admission]] = Counter()
        self.unmatched: dict[Unmatched, Any] = {reason: SortedDict() for reason in Unmatched}
        self.unread: dict[int, dict[JobId, Job]] = {}
        self.deregistering: Counter[SkuName] = Counter()
        self.activity = Activity()
        self.counters = Counters()
        self.machines_used = 0
        self.dollars_used = 0.0
        self.spot_costs = SpotCosts()
        self.used_by_sku: Counter[SkuName] = Counter()
        self.used_by_quota: Counter[str] = Counter()

    def index(self, record: Record) -> None:
        """Add a record to the indexes."""
        if isinstance(record, Machine):
            self._index_machine(record)
        elif isinstance(record, Job):
            self._index_job(record)
        elif isinstance(record, Runner):
            self._index_runner(record)
        elif isinstance(record, Rerun):
            self._index_rerun(record)
        elif record.state is not LaunchRequestState.SETTLED:
            self.open_launch_requests[record.id] = record

    def unindex(self, record: Record) -> None:
        """Remove a record from the indexes. Its fields must be the same as when it was added."""
        if isinstance(record, Machine):
            self._unindex_machine(record)
        elif isinstance(record, Job):
            self._unindex_job(record)
        elif isinstance(record, Runner):
            self._unindex_runner(record)
        elif isinstance(record, Rerun):
            self._unindex_rerun(record)
        else:
            self.open_launch_requests.pop(record.id, None)

    def _index_job(self, job: Job) -> None:
        self.activity.add(job)
        if job.state is JobState.COMPLETED:
            self.prunable[job.completed_at or job.updated_at, "job", job.id] = job
        if job.expires_at is not None:
            self.expiring[job.expires_at, job.id] = job
        if job.run_id is not None and self._is_unread(job):
            self.unread.setdefault(job.run_id, {})[job.id] = job
        if job.demand is None:
            if job.state is JobState.QUEUED:
                self._index_unmatched(job)
            return
        if job.state is JobState.QUEUED and (job.passed_over or is_on_hold(job)):
            self.jobs_passed_over.setdefault(place_of(job, job.demand), {})[job.id] = job
        self.counters.queue(job)
        self.counters.await_approval(job, 1)
        if job.state is JobState.IN_PROGRESS:
            self.in_progress[job.demand.skus[0]] += 1
            self.counters.running_job(self.catalogue, job, 1)
        elif job.state is JobState.QUEUED:
            self._index_queued(job, job.demand)

    def _index_unmatched(self, job: Job) -> None:
        reason = self._classes.why_unmatched(job.repository, job.labels)
        if reason is not None:
            self.unmatched[reason][job.queued_at, job.id] = job

    def _unindex_unmatched(self, job: Job) -> None:
        for jobs in self.unmatched.values():
            jobs.pop((job.queued_at, job.id), None)

    def _index_queued(self, job: Job, demand: DemandClass) -> None:
        if job.disputed:
            self.disputed[demand] += 1
        elif job.admission is not Admission.ADMITTED:
            self.unadmitted[demand, job.admission] += 1
        elif is_on_hold(job):
            self.on_hold.setdefault(demand, {})[job.id] = job
        else:
            queue = self.queues.get(demand)
            if queue is None:
                queue = self.queues[demand] = SortedDict()
            queue[job.queued_at, job.id] = job
            self.waiting.add((job.queued_at, demand, job.id))
            self.counters.add_to_repository_queue(self.catalogue, job)

    def _unindex_job(self, job: Job) -> None:
        self.activity.remove(job)
        self.prunable.pop((job.completed_at or job.updated_at, "job", job.id), None)
        self.expiring.pop((job.expires_at, job.id), None)
        self._unindex_unread(job)
        if job.demand is None:
            self._unindex_unmatched(job)
            return
        self._unindex_passed_over(job, place_of(job, job.demand))
        self.counters.await_approval(job, -1)
        if job.state is JobState.IN_PROGRESS:
            self.in_progress[job.demand.skus[0]] -= 1
            self.counters.running_job(self.catalogue, job, -1)
        elif job.state is JobState.QUEUED and job.disputed:
            _count_out(self.disputed, job.demand)
        elif job.state is JobState.QUEUED and job.admission is not Admission.ADMITTED:
            _count_out(self.unadmitted, (job.demand, job.admission))
        self.counters.unqueue(job)
        self.counters.remove_from_repository_queue(job)
        queue = self.queues.get(job.demand)
        if queue is not None:
            if queue.pop((job.queued_at, job.id), None) is not None:
                self.waiting.remove((job.queued_at, job.demand, job.id))
            if not queue:
                del self.queues[job.demand]
        on_hold = self.on_hold.get(job.demand)
        if on_hold is not None:
            on_hold.pop(job.id, None)
            if not on_hold:
                del self.on_hold[job.demand]

    def _unindex_passed_over(self, job: Job, place: Place) -> None:
        of_place = self.jobs_passed_over.get(place)
        if of_place is not None:
            of_place.pop(job.id, None)
            if not of_place:
                del self.jobs_passed_over[place]

    def _is_unread(self, job: Job) -> bool:
        """Return True if the job's run must be read, to admit the job or to check its SKU."""
        if job.origin is not None:
            return False
        if job.admission is Admission.UNREAD and job.state is not JobState.COMPLETED:
            return True
        runner = self.runners.get(job.runner_name) if job.runner_name is not None else None
        machine = self.machines.get(runner.machine) if runner is not None else None
        sku = self.catalogue.skus.get(machine.sku) if machine is not None else None
        if sku is None or not depends_on_run(sku.access):
            return False
        return scope_of(self.catalogue, job.repository) is not None

    def _unindex_unread(self, job: Job) -> None:
        of_run = self.unread.get(job.run_id) if job.run_id is not None else None
        if of_run is not None and job.run_id is not None:
            of_run.pop(job.id, None)
            if not of_run:
                del self.unread[job.run_id]

    def _index_machine(self, machine: Machine) -> None:
        key = (machine.sku, machine.state)
        ordered = self.by_state.get(key)
        if ordered is None:
            ordered = self.by_state[key] = SortedDict()
        ordered[machine.since, machine.id] = machine
        self.counters.machine(machine, self.launch_requests.get(machine.launch_request), 1)
        self.spot_costs.count(machine, 1)
        if machine.due is not None:
            self.due[machine.due, machine.id] = machine
        if machine.placement.provider_id is not None:
            self.by_provider_id[machine.placement.provider_id] = machine.id
        if machine.occupies:
            self.count_use(
                machine.sku, machine.placement.dollars_per_hour, machine.placement.quota_usage, 1
            )
        else:
            self.prunable[machine.prunable_from, "machine", machine.id] = machine

    def _unindex_machine(self, machine: Machine) -> None:
        self.by_state[machine.sku, machine.state].pop((machine.since, machine.id), None)
        self.counters.machine(machine, self.launch_requests.get(machine.launch_request), -1)
        self.spot_costs.count(machine, -1)
        if machine.due is not None:
            self.due.pop((machine.due, machine.id), None)
        if machine.placement.provider_id is not None:
            self.by_provider_id.pop(machine.placement.provider_id, None)
        if machine.occupies:
            self.count_use(
                machine.sku, machine.placement.dollars_per_hour, machine.placement.quota_usage, -1
            )
        self.prunable.pop((machine.prunable_from, "machine", machine.id), None)

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

    def _index_runner(self, runner: Runner) -> None:
        self.counters.runner(runner, self.machines.get(runner.machine), 1)
        if runner.state is RunnerState.DEREGISTERING:
            self.deregistering[self.machines[runner.machine].sku] += 1
        if runner.state in IDLE_STATES and not runner.passed_over:
            self.idle_runners[runner.demand] += 1
            if runner.retry_at is not None:
                self.idle_checks[runner.retry_at, runner.name] = runner
        if runner.state in _WITHDRAWABLE and runner.configuration_sent_at is None:
            self.deregistrable.setdefault(runner.demand, {})[runner.name] = runner

    def _unindex_runner(self, runner: Runner) -> None:
        self.counters.runner(runner, self.machines.get(runner.machine), -1)
        if runner.state is RunnerState.DEREGISTERING:
            self.deregistering[self.machines[runner.machine].sku] -= 1
        if runner.state in IDLE_STATES and not runner.passed_over:
            self.idle_runners[runner.demand] -= 1
            if not self.idle_runners[runner.demand]:
                del self.idle_runners[runner.demand]
            if runner.retry_at is not None:
                self.idle_checks.pop((runner.retry_at, runner.name), None)
        deregistrable = self.deregistrable.get(runner.demand)
        if deregistrable is not None:
            deregistrable.pop(runner.name, None)
            if not deregistrable:
                del self.deregistrable[runner.demand]

    def _index_rerun(self, rerun: Rerun) -> None:
        self.reruns_of_run.setdefault(rerun.run_id, {})[rerun.job] = rerun
        if rerun.due is not None:
            self.rerun_due[rerun.due, rerun.job] = rerun
        if rerun.ended_at is not None:
            self.prunable[_rerun_prunable_from(rerun), "rerun", rerun.job] = rerun

    def _unindex_rerun(self, rerun: Rerun) -> None:
        of_run = self.reruns_of_run[rerun.run_id]
        del of_run[rerun.job]
        if not of_run:
            del self.reruns_of_run[rerun.run_id]
        self.rerun_due.pop((rerun.due, rerun.job), None)
        self.prunable.pop((_rerun_prunable_from(rerun), "rerun", rerun.job), None)


def _count_out(counts: Counter[Counted], key: Counted) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _rerun_prunable_from(rerun: Rerun) -> Instant:
    """Return from when on a rerun may be pruned: the run's budget counts its earlier reruns."""
    return (rerun.ended_at or 0.0) + 3.0 * DAY
