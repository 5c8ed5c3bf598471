"""The ledger: applies events to records and shows the result as a Fleet. Pure.

`apply` is O(log n) for every event but these: a provider's list is O(its length), a complete one
O(machines), and while a machine of an unknown call stands, any list is O(machines and jobs). A list of
registrations is O(its names), each times its call's slots where we do not know it. A job's start is
O(jobs that GitHub is asked about) while one of its class is among them. A start of ours is O(all records
and cooldowns).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autoscaler.ledger import (
    circuits,
    interruptions,
    job_holds,
    jobs,
    launch_requests,
    lists,
    machines,
    operator_requests,
    restored,
    runners,
    runs,
    starting,
)
from autoscaler.ledger.launch_rate import launch_tokens
from autoscaler.ledger.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.changes import Changes, Record
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.fleet import Fleet, Usage
from autoscaler.model.identifiers import Instant, ProviderName, Seconds
from autoscaler.model.jobs import Job
from autoscaler.model.launch_requests import LaunchRequestState
from autoscaler.model.machines import ExitReason, Machine
from autoscaler.model.prices import Price
from autoscaler.model.runners import runner_names

REMEMBERED_FOR: Seconds = 600.0
"""How long what has ended stays in memory; its row stays in the store."""

FORGOTTEN_AT_ONCE = 500
"""Records that leave memory at once: of thousands that ended together, the rest follows a little later."""


class Ledger:
    """All records of one installation. One writer: the control loop."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._state = LedgerState(catalogue)

    @property
    def state(self) -> LedgerState:
        """The records and indexes, to read."""
        return self._state

    def restore(self, records: Iterable[Record], cooldowns: Iterable[Cooldown]) -> None:
        """Take in what the store kept. To be followed by a ControllerStarted event."""
        for record in records:
            if isinstance(record, Job):
                if record.run_id is not None and record.from_fork is not None:
                    runs.remember(self._state, record.run_id, record.from_fork)
                # The configuration may have changed since: the class is today's.
                self._state.admit(record)
            self._state.add(record, stored=True)
        for cooldown in cooldowns:
            self._state.cooldowns[cooldown.key] = cooldown
        for job in self._state.jobs.values():
            if job.disputed:
                self._state.reads[job.id] = job.updated_at

    def replace_catalogue(self, catalogue: Catalogue) -> None:
        """Plan with another catalogue from now on, as when a provider could be opened at last.

        The installation's ids stay those that the ledger knows: it alone hears of a take-over.
        """
        self._state.use_catalogue(catalogue.with_installations(self._state.catalogue.installations))

    def use_spot_prices(self, prices: Mapping[ProviderName, Iterable[Price]]) -> None:
        """Say what spot machines cost at these prices from now on; limits stay as they are."""
        self._state.spot_costs.use(prices)

    def recall(self, job: Job) -> None:
        """Take one job back that has left memory."""
        self._state.admit(job)
        self._state.add(job, stored=True)

    def apply(self, event: e.Event) -> None:
        """Take one fact in. Raises KeyError for a machine that does not exist."""
        _HANDLERS[type(event)](self._state, event)

    def take_changes(self) -> Changes:
        """What must be stored since the last taking."""
        return self._state.take_changes()

    def fleet(self, now: Instant) -> Fleet:
        """The fleet at this moment. O(accounts + providers); valid until the next `apply`."""
        s = self._state
        accounts = {demand.account for demand in s.queues} | set(s.registration_levels)
        return Fleet(
            now=now,
            started_at=s.started_at,
            catalogue=s.catalogue,
            offerings=s.offerings,
            jobs=s.jobs,
            queues=s.queues,
            held=s.held,
            disputed=s.disputed,
            reads=s.reads,
            machines=s.machines,
            runners_listed_at=s.every_scope_listed_at,
            by_state=s.by_state,
            due=s.due,
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
            booting=s.counters.booting,
            runners_without_job=s.counters.runners_without_job,
            queues_by_repository=s.counters.queues_by_repository,
            running=s.counters.running,
            unadmitted=s.unadmitted,
            unread=s.unread,
            run_questions=s.run_questions,
            waiting=s.waiting,
        )


def _on_machine_exited(state: LedgerState, event: e.MachineExited) -> None:
    machine = state.machines[event.machine]
    job_holds.left_idle(state, machine, event.at)
    if event.reason is ExitReason.NOT_CONNECTED:
        job_holds.take_marks_back(state, machine, event.at)
    machines.on_exited(state, event)


def _on_runner_closed(state: LedgerState, event: e.RunnerClosed) -> None:
    runner = state.runners.get(event.name)
    machine = state.machines.get(runner.machine) if runner is not None else None
    if machine is not None and machine.runner == event.name:
        job_holds.left_idle(state, machine, event.at)
    not_handed_over = runner is not None and runner.handed_over_at is None
    runners.on_runner_closed(state, event)
    if not_handed_over:
        restored.closed_at_work(state, event.name, event.at)


def _on_machine_seen(state: LedgerState, event: e.MachineSeen) -> None:
    machines.on_seen(state, event)
    if event.polled:
        restored.asked_for_an_assignment(state, event.machine, event.at)


def _on_time_passed(state: LedgerState, event: e.TimePassed) -> None:
    jobs.expire(state, event.at)
    job_holds.check_idle_runners(state, event.at)
    job_holds.probe_held(state, event.at)
    interruptions.give_up(state, event.at)
    _forget(state, event.at - REMEMBERED_FOR)


def _forget(state: LedgerState, before: Instant) -> None:
    for _ in range(FORGOTTEN_AT_ONCE):
        if not state.prunable or state.prunable.peekitem(0)[0][0] >= before:
            return
        record = state.prunable.peekitem(0)[1]
        state.drop(record)
        if isinstance(record, Machine):
            _forget_with(state, record)


def _forget_with(state: LedgerState, machine: Machine) -> None:
    for name in runner_names(state.catalogue, machine.id, machine.tries):
        if name in state.runners:
            state.drop(state.runners[name])
    request = state.launch_requests.get(machine.launch_request)
    if request is None or request.state is not LaunchRequestState.SETTLED:
        return
    # A call is known for as long as any of its machines is: lists are checked against it.
    # From the last slot on: machines are mostly forgotten in the order of their slots.
    if not any(slot in state.machines for slot in reversed(request.slots)):
        state.drop(request)


_HANDLERS: dict[type[e.Event], Callable[[LedgerState, Any], None]] = {
    e.JobObserved: jobs.on_job_observed,
    e.JobReadRequested: jobs.on_job_read_requested,
    e.JobAbandoned: jobs.on_job_abandoned,
    e.RunRead: runs.on_run_read,
    e.RunReadRequested: runs.on_run_read_requested,
    e.RunnersListed: restored.on_runners_listed,
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
    e.MachineSeen: _on_machine_seen,
    e.MachineExited: _on_machine_exited,
    e.TerminationRequested: machines.on_termination_requested,
    e.TerminationAnswered: machines.on_termination_answered,
    e.RunnerReadRequested: machines.on_runner_read_requested,
    e.MachineMarkedUnverified: restored.on_machine_marked_unverified,
    e.RunnerRead: machines.on_runner_read,
    e.ConsoleRead: machines.on_console_read,
    e.RunnerNamed: runners.on_runner_named,
    e.RunnerRegistered: runners.on_runner_registered,
    e.RunnerRegistrationFailed: runners.on_runner_registration_failed,
    e.RunnerHandedOver: runners.on_runner_handed_over,
    e.RunnerListening: runners.on_runner_listening,
    e.RunnerDeregistrationRequested: runners.on_deregistration_requested,
    e.RunnerDeregistered: runners.on_runner_deregistered,
    e.RunnerClosed: _on_runner_closed,
    e.MachineNoticed: interruptions.on_machine_noticed,
    e.RerunRequested: interruptions.on_rerun_requested,
    e.RerunAnswered: interruptions.on_rerun_answered,
    e.MachineReleasedByOperator: operator_requests.on_machine_released_by_operator,
    e.InstallationTakenOver: operator_requests.on_installation_taken_over,
    e.CircuitClosed: circuits.on_circuit_closed,
    e.ControllerStarted: starting.on_controller_started,
    e.TimePassed: _on_time_passed,
}
