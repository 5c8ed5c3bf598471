"""The ledger: applies events to records and returns the result as a Fleet. Pure.

`apply` costs O(log n), except for these events:

- a provider's listing: O(its length); a complete one: O(machines); while a machine of an unknown launch
  request exists, any one: O(machines + jobs)
- a listing of runners: O(its names), times the slots of a launch request for an unknown runner
- a reading of a runner group: O(queued jobs of the group)
- the start of a job: O(jobs of its repository for which runners were passed over)
- an idle runner that GitHub passed over: O(queued jobs of the group)
- a TimePassed event: O(jobs on hold)
- the start of the controller: O(records + cooldowns)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autoscaler.ledger import job_holds, starting
from autoscaler.ledger.failures import circuits, retries
from autoscaler.ledger.jobs import reports as jobs
from autoscaler.ledger.jobs import runner_groups, runners, runs
from autoscaler.ledger.machines import (
    foreign,
    interruptions,
    launch_requests,
    lists,
    operator_holds,
    operator_requests,
    reruns,
    unverified,
)
from autoscaler.ledger.machines import reports as machines
from autoscaler.ledger.machines.launch_requests import launch_tokens
from autoscaler.ledger.reclassify import use_changed_catalogue
from autoscaler.ledger.records.state import LedgerState, Refuse, raise_unlisted
from autoscaler.model import events as e
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.changes import Changes, Record
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.fleet import Fleet, Usage
from autoscaler.model.identifiers import Instant, ProviderName, Seconds
from autoscaler.model.jobs.job import Job, JobState, Question
from autoscaler.model.jobs.runners import runner_names
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import Machine
from autoscaler.model.prices_and_quotas import ForeignUsage, Price

KEPT_FOR: Seconds = 600.0
"""How long a record stays in memory after its end. It stays in the store for longer."""

PRUNED_AT_ONCE = 500
"""Maximum number of records that one event prunes from memory. The next event prunes more."""


class Ledger:
    """All records of one installation. Only the control loop changes them."""

    def __init__(self, catalogue: Catalogue, refuse: Refuse = raise_unlisted) -> None:
        """`refuse` gets every transition that is in no table. By default it is raised."""
        self._state = LedgerState(catalogue, refuse)

    @property
    def state(self) -> LedgerState:
        """The records and indexes. Read-only."""
        return self._state

    def restore(self, records: Iterable[Record], cooldowns: Iterable[Cooldown]) -> None:
        """Add what the store loaded. Apply a ControllerStarted event afterwards."""
        for record in records:
            if isinstance(record, Job):
                if record.run_id is not None and record.origin is not None:
                    runs.remember(self._state, record.run_id, record.origin)
                # The configuration may have changed: compute the class again.
                self._state.admit(record)
            self._state.add(record, stored=True)
        for cooldown in cooldowns:
            self._state.restore_cooldown(cooldown)
        for job in self._state.jobs.values():
            runner, _ = self._state.runner_and_machine(job)
            if runner is not None and runner.job == job.id:
                job_holds.note_served(self._state, job, runner)
            if job.disputed:
                self._state.reads[job.id] = Question(job.updated_at, job.updated_at)
        job_holds.restore_repository_holds(self._state)

    def restore_foreign(self, provider: ProviderName, usage: ForeignUsage) -> None:
        """Count what the store has about machines of other installations, until this provider is listed."""
        foreign.restore(self._state, provider, usage)

    def replace_catalogue(self, catalogue: Catalogue) -> None:
        """Use another catalogue from now on, for example when a provider became available.

        The installation IDs do not change, because only the ledger knows about adoptions.
        """
        self._state.use_catalogue(catalogue.with_installations(self._state.catalogue.installations))

    def change_catalogue(self, catalogue: Catalogue) -> int:
        """Use the catalogue of a changed configuration. Return how many jobs have another class since.

        O(jobs + machines): some 10 ms for 10,000, and more for each job that moves.
        """
        installations = self._state.catalogue.installations
        return use_changed_catalogue(self._state, catalogue.with_installations(installations))

    def use_spot_prices(self, prices: Mapping[ProviderName, Iterable[Price]]) -> None:
        """Use these spot prices for the cost of spot machines. Limits do not use them."""
        self._state.spot_costs.use(prices)

    def add_pruned_job(self, job: Job) -> None:
        """Add a job again that was pruned from memory."""
        self._state.admit(job)
        self._state.add(job, stored=True)

    def apply(self, event: e.Event) -> None:
        """Apply an event.

        Raises: KeyError if the event is about a machine that is not in memory.
        """
        _HANDLERS[type(event)](self._state, event)

    def take_changes(self) -> Changes:
        """Return what changed since the last call, for the store."""
        return self._state.take_changes()

    def fleet(self, now: Instant) -> Fleet:
        """Return the fleet at this moment. O(accounts + providers). Valid until the next `apply`."""
        s = self._state
        accounts = {demand.account for demand in s.queues} | set(s.registration_levels)
        return Fleet(
            now=now,
            evidence=s.evidence,
            catalogue=s.catalogue,
            offerings=s.offerings,
            jobs=s.jobs,
            queues=s.queues,
            on_hold=s.on_hold,
            disputed=s.disputed,
            reads=s.reads,
            machines=s.machines,
            by_state=s.by_state,
            due=s.due_at(now),
            runners=s.runners,
            idle_runners=s.idle_runners,
            deregistrable=s.deregistrable,
            launch_requests=s.open_launch_requests,
            cooldowns=s.cooldowns,
            usage=Usage(s.machines_used, s.dollars_used, s.used_by_sku, s.used_by_quota),
            registrations={a: runners.registration_level(s, a, now) for a in sorted(accounts)},
            launch_tokens={p: launch_tokens(s, p, now) for p in s.catalogue.launch_rates},
            boot_seconds=s.boot_seconds,
            deregistering=s.deregistering,
            quotas=s.quotas,
            booting=s.booting,
            boots=s.boots,
            ready_unseen=s.ready_unseen,
            runners_without_job=s.runners_without_job,
            queues_by_repository=s.queues_by_repository,
            running=s.running,
            unadmitted=s.unadmitted,
            unmatched=s.unmatched,
            unread=s.unread,
            run_questions=s.run_questions,
            waiting=s.waiting,
            operator_holds=s.operator_holds,
        )


def _on_time_passed(state: LedgerState, event: e.TimePassed) -> None:
    jobs.expire(state, event.at)
    job_holds.check_idle_runners(state, event.at)
    job_holds.probe_held(state, event.at)
    reruns.give_up(state, event.at)
    _prune(state, event.at - KEPT_FOR)


def _prune(state: LedgerState, before: Instant) -> None:
    for _ in range(PRUNED_AT_ONCE):
        if not state.prunable or state.prunable.peekitem(0)[0][0] >= before:
            return
        record = state.prunable.peekitem(0)[1]
        _, machine = state.runner_and_machine(record) if isinstance(record, Job) else (None, None)
        if machine is not None and machine.occupies:
            # The provider may report later that the machine was taken from the job. `_prune_with` drops it.
            state.prunable.popitem(0)
            continue
        state.drop(record)
        if isinstance(record, Machine):
            _prune_with(state, record, before)


def _ended_at(job: Job) -> Instant:
    return job.completed_at or job.updated_at


def _prune_with(state: LedgerState, machine: Machine, before: Instant) -> None:
    for name in runner_names(state.catalogue, machine.id, machine.work.tries):
        runner = state.runners.get(name)
        if runner is None:
            continue
        job = state.jobs.get(runner.job) if runner.job is not None else None
        if job is not None and job.state is JobState.COMPLETED and _ended_at(job) < before:
            state.drop(job)
        state.drop(runner)
    request = state.launch_requests.get(machine.launch_request)
    if request is None or request.state is not LaunchRequestState.SETTLED:
        return
    # Keep the request while any of its machines is in memory: listings are matched with it.
    # Start at the last slot, because machines are mostly pruned in the order of their slots.
    if not any(slot in state.machines for slot in reversed(request.slots)):
        state.drop(request)


_HANDLERS: dict[type[e.Event], Callable[[LedgerState, Any], None]] = {
    e.JobObserved: jobs.on_job_observed,
    e.JobReadRequested: jobs.on_job_read_requested,
    e.JobAbandoned: jobs.on_job_abandoned,
    e.WaitReasonsChanged: jobs.on_wait_reasons_changed,
    e.FaultChanged: jobs.on_fault_changed,
    e.RunRead: runs.on_run_read,
    e.RunReadRequested: runs.on_run_read_requested,
    e.RunnerGroupRead: runner_groups.on_runner_group_read,
    e.RunnersListed: unverified.on_runners_listed,
    e.LaunchRequestRecorded: launch_requests.on_launch_request_recorded,
    e.LaunchRequestPrepared: launch_requests.on_launch_request_prepared,
    e.LaunchRequestSent: launch_requests.on_launch_request_sent,
    e.LaunchRequestAnswered: launch_requests.on_launch_request_answered,
    e.LaunchOutcomeUnknown: launch_requests.on_launch_outcome_unknown,
    e.LaunchRequestCancelled: launch_requests.on_launch_request_cancelled,
    e.MachinesListed: lists.on_machines_listed,
    e.QuotasRead: lists.on_quotas_read,
    e.MachineAttested: machines.on_attestation,
    e.MachineReportedStage: machines.on_stage,
    e.HealthChecksReported: machines.on_health_checks,
    e.MachineSeen: machines.on_seen,
    e.MachineExited: machines.on_exited,
    e.TerminationRequested: machines.on_termination_requested,
    e.TerminationAnswered: machines.on_termination_answered,
    e.RunnerReadRequested: machines.on_runner_read_requested,
    e.MachineMarkedUnverified: unverified.on_machine_marked_unverified,
    e.RunnerRead: machines.on_runner_read,
    e.ConsoleRead: machines.on_console_read,
    e.RunnerNamed: runners.on_runner_named,
    e.RunnerRegistered: runners.on_runner_registered,
    e.RunnerRegistrationFailed: runners.on_runner_registration_failed,
    e.ConfigurationSent: runners.on_configuration_sent,
    e.RunnerListening: runners.on_runner_listening,
    e.RunnerDeregistrationRequested: runners.on_deregistration_requested,
    e.RunnerDeregistered: runners.on_runner_deregistered,
    e.RunnerClosed: runners.on_runner_closed,
    e.MachineNoticed: interruptions.on_machine_noticed,
    e.RerunRequested: reruns.on_rerun_requested,
    e.RerunAnswered: reruns.on_rerun_answered,
    e.MachineReleasedByOperator: unverified.on_machine_released_by_operator,
    e.ConfigurationReloaded: operator_requests.on_configuration_reloaded,
    e.InstallationAdopted: operator_requests.on_installation_adopted,
    e.HeldByOperator: operator_holds.on_held_by_operator,
    e.ResumedByOperator: operator_holds.on_resumed_by_operator,
    e.RetriedByOperator: retries.on_retried_by_operator,
    e.CircuitClosed: circuits.on_circuit_closed,
    e.ImageReplaced: circuits.on_image_replaced,
    e.ControllerStarted: starting.on_controller_started,
    e.TimePassed: _on_time_passed,
}
