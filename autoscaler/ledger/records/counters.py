"""Counters and small indexes of the records: booting and unverified machines, running and queued jobs.

They depend on the records alone, and are updated with every change of a record.
"""

from collections import Counter
from typing import Any

from sortedcontainers import SortedDict

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import Instant, MachineId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.jobs.runners import IDLE_STATES, Runner, RunnerState
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import BOOTING_STATES, Machine, MachineState


class Counters:
    """Counters and small indexes over all records. Each change of a record updates them in O(log n)."""

    def __init__(self) -> None:
        self.unverified = 0
        """Machines that may run a job and that no operator has released (`is_unverified`)."""
        self.not_terminating = 0
        """Machines that still exist after several requests to terminate them."""
        self.unverified_existing = 0
        """Unverified machines that still exist, also those that an operator released or that exited."""
        self.booting: dict[tuple[SkuName, int], dict[MachineId, None]] = {}
        self.boots: dict[SkuName, Counter[Instant]] = {}
        self.ready_unseen: Counter[SkuName] = Counter()
        self.runners_without_job: Counter[SkuName] = Counter()
        self.queues_by_repository: dict[DemandClass, dict[str, Any]] = {}
        self._queued: dict[SkuName, Any] = {}
        self.running: Counter[tuple[SkuName, str]] = Counter()
        self.runners: Counter[tuple[SkuName, RunnerState]] = Counter()
        """Registrations that are not over."""
        self.awaiting_approval: Counter[SkuName] = Counter()
        """Jobs that GitHub holds back, for example until an environment is approved."""

    def machine(self, machine: Machine, request: LaunchRequest | None, sign: int) -> None:
        """Add (1) or remove (-1) a machine."""
        self.unverified += sign if machine.is_unverified else 0
        self.not_terminating += sign if machine.does_not_terminate else 0
        self.unverified_existing += sign if machine.work.unverified and machine.occupies else 0
        if machine.state is MachineState.READY and not machine.work.agent_seen:
            self.ready_unseen[machine.sku] += sign
        if machine.state not in BOOTING_STATES:
            return
        boots = self.boots.setdefault(machine.sku, Counter())
        boots[machine.created_at] += sign
        if not boots[machine.created_at]:
            del boots[machine.created_at]
        if request is None:
            return
        key = (machine.sku, request.option)
        if sign > 0:
            self.booting.setdefault(key, {})[machine.id] = None
        else:
            self.booting.get(key, {}).pop(machine.id, None)

    def runner(self, runner: Runner, machine: Machine | None, sign: int) -> None:
        """Add (1) or remove (-1) a registration that may still get a job.

        `machine` is None only for a registration that is over.
        """
        if machine is not None and runner.state is not RunnerState.DONE:
            self.runners[machine.sku, runner.state] += sign
        if machine is not None and runner.state in IDLE_STATES and not runner.passed_over:
            self.runners_without_job[machine.sku] += sign

    def running_job(self, catalogue: Catalogue, job: Job, sign: int) -> None:
        """Add (1) or remove (-1) a running job of a SKU with a fair share."""
        if job.demand is not None and job.state is JobState.IN_PROGRESS and shared(catalogue, job):
            key = (job.demand.skus[0], job.repository.lower())
            self.running[key] += sign
            if not self.running[key]:
                del self.running[key]

    def await_approval(self, job: Job, sign: int) -> None:
        """Add (1) or remove (-1) a job that GitHub holds back."""
        if job.demand is not None and job.state is JobState.WAITING:
            self.awaiting_approval[job.demand.skus[0]] += sign

    def oldest_queued(self, sku: SkuName) -> Instant | None:
        """Return when the oldest queued job of a SKU was queued, including jobs on hold and disputed ones."""
        queued = self._queued.get(sku)
        return queued.peekitem(0)[0][0] if queued else None

    def queue(self, job: Job) -> None:
        """Add a queued job to those that wait for its SKU. A refused job of a fork does not wait."""
        waits = job.state is JobState.QUEUED and job.admission is not Admission.FORK
        if job.demand is not None and waits:
            queued = self._queued.get(job.demand.skus[0])
            if (
                queued is None
            ):  # setdefault would create an unused SortedDict per job, which costs 6 us
                queued = self._queued[job.demand.skus[0]] = SortedDict()
            queued[job.queued_at, job.id] = None

    def unqueue(self, job: Job) -> None:
        """Remove a job from those that wait for its SKU, if it is there."""
        if job.demand is not None and (queued := self._queued.get(job.demand.skus[0])) is not None:
            queued.pop((job.queued_at, job.id), None)

    def add_to_repository_queue(self, catalogue: Catalogue, job: Job) -> None:
        """Add a queued job of a SKU with a fair share to its repository's queue."""
        if job.demand is not None and shared(catalogue, job):
            queues = self.queues_by_repository.setdefault(job.demand, {})
            queue = queues.setdefault(job.repository.lower(), SortedDict())
            queue[job.queued_at, job.id] = job

    def remove_from_repository_queue(self, job: Job) -> None:
        """Remove a job from its repository's queue, if it is there."""
        queues = self.queues_by_repository.get(job.demand) if job.demand is not None else None
        queue = queues.get(job.repository.lower()) if queues is not None else None
        if queues is None or queue is None or job.demand is None:
            return
        queue.pop((job.queued_at, job.id), None)
        if not queue:
            del queues[job.repository.lower()]
        if not queues:
            del self.queues_by_repository[job.demand]


def shared(catalogue: Catalogue, job: Job) -> bool:
    """Return True if the first SKU of a job's class has a fair share."""
    sku = catalogue.skus.get(job.demand.skus[0]) if job.demand is not None else None
    return sku is not None and sku.share is not None
