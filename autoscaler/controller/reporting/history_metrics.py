"""Reports the ledger's history rows, each once, to the metrics and the log."""

from collections.abc import Sequence

import structlog

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reporting.log_fields import job_fields, machine_fields
from autoscaler.ledger.jobs.job_waits import machine_of, wait_stages
from autoscaler.ledger.jobs.runs import OUTSIDE_ACCESS
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.accounting import WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import (
    JobId,
    LaunchRequestId,
    MachineId,
    Seconds,
)
from autoscaler.model.jobs.job import Admission, Job
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import RerunOutcome
from autoscaler.model.machines.machine import (
    SAID_WITHOUT_A_JOB,
    ExitReason,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.reasons.table import WaitCode

_log = structlog.get_logger(__name__)


def report(state: LedgerState, telemetry: Telemetry, rows: Sequence[HistoryRow]) -> None:
    """Count the events of new history rows."""
    for row in rows:
        if row.kind == "job":
            _report_job(row, state, telemetry)
        elif row.kind == "machine":
            _report_machine(row, state, telemetry)
        elif row.kind == "launch_request":
            _report_launch_request(row, state, telemetry)


def _report_job(row: HistoryRow, state: LedgerState, telemetry: Telemetry) -> None:
    rerun = state.reruns.get(JobId(int(row.record)))
    if rerun is not None and row.event in _ENDS_OF_RERUNS:
        telemetry.rerun(rerun.sku, _ENDS_OF_RERUNS[row.event])
    job = state.jobs.get(JobId(int(row.record)))
    if job is None or job.demand is None:
        return
    sku = job.demand.skus[0]
    if row.event == "in_progress":
        started_at = job.started_at or row.at
        waited = max(0.0, started_at - job.queued_at)
        telemetry.job_started(sku, job.repository, waited)
        stages: dict[WaitStage, Seconds] = {}
        for stage, seconds in wait_stages(state, job, started_at):
            stages[stage] = stages.get(stage, 0.0) + seconds
        telemetry.job_waited(sku, stages)
        _report_start(state, job, waited)
    elif row.event == "completed":
        telemetry.job_completed(sku, job.repository, job.conclusion or "unknown")
    elif row.event in _REFUSALS:
        telemetry.job_refused(sku, row.event)
        reason = WaitCode(row.event).entry.sentence
        _log.warning("job_refused", code=row.event, **job_fields(job), sku=sku, reason=reason)


def _report_start(state: LedgerState, job: Job, waited: Seconds) -> None:
    """Log a job that started, with its machine if a runner of this fleet has it."""
    found = machine_of(state, job)
    of_machine = machine_fields(found[1]) if found is not None else {}
    _log.info("job_started", **job_fields(job), **of_machine, waited_seconds=round(waited, 1))


def _report_machine(row: HistoryRow, state: LedgerState, telemetry: Telemetry) -> None:
    machine = state.machines.get(MachineId(row.record))
    if machine is None:
        return
    if row.event in _ENDS and row.code:
        _report_end(machine, row, state, telemetry)
    elif row.event == MachineState.LAUNCHED and machine.placement.capacity_type:
        kind = CapacityType(machine.placement.capacity_type)
        telemetry.machine_launched(machine.provider, kind, machine.placement.zone)
    elif row.event == MachineState.FAILED and row.code:
        _report_failure(machine, FailureClass(row.code), state, telemetry)
        if row.code == FailureClass.HEALTH_CHECK:
            _report_health_checks(machine, row, telemetry)
    elif row.event == MachineState.EXITED and machine.work.exit_reason is not None:
        telemetry.runner_exited(machine.sku, _credible(state, machine, machine.work.exit_reason))
    elif row.event == "interrupted" and machine.interruption.kind is not None:
        telemetry.machine_interrupted(machine.sku, machine.interruption.kind)
    elif row.event == OUTSIDE_ACCESS:
        telemetry.job_outside_access(machine.sku, row.detail.partition(":")[0])
        _log.warning("job_ran_outside_access", **machine_fields(machine), detail=row.detail)


def _credible(state: LedgerState, machine: Machine, reason: ExitReason) -> ExitReason:
    """Return the reason of an exit, or `exited` if a job on the machine must have reported it."""
    runner = state.runner_of(machine)
    had_job = runner is not None and runner.job is not None
    return ExitReason.EXITED if had_job and reason in SAID_WITHOUT_A_JOB else reason


def _report_launch_request(row: HistoryRow, state: LedgerState, telemetry: Telemetry) -> None:
    request = state.launch_requests.get(LaunchRequestId(row.record))
    if request is None:
        return
    if row.event == "recorded":
        count = len(request.slots)
        telemetry.launches(request.sku, request.provider, request.capacity_type, count)
    elif row.code:
        _log.warning(
            "launch_failed",
            launch_request=request.id,
            sku=request.sku,
            provider=request.provider,
            capacity_type=request.capacity_type,
            code=row.code,
            reason=row.detail,
        )


def _report_failure(
    machine: Machine, failure: FailureClass, state: LedgerState, telemetry: Telemetry
) -> None:
    request = state.launch_requests.get(machine.launch_request)
    kind = request.capacity_type if request is not None else None
    telemetry.launch_failures(machine.sku, machine.provider, kind, failure, 1)


def _report_end(
    machine: Machine, row: HistoryRow, state: LedgerState, telemetry: Telemetry
) -> None:
    """Report that a machine ends. Its failure counts here if it was never in the state `failed`."""
    code = TerminationReason(row.code)
    telemetry.machine_terminated(machine.sku, code)
    if code in _FAILURES_OF_ENDS and machine.failure is not None:
        _report_failure(machine, machine.failure, state, telemetry)
    _log.info(
        "machine_terminated",
        **machine_fields(machine),
        code=code,
        reason=row.detail,
        failure=machine.failure,
    )


def _report_health_checks(machine: Machine, row: HistoryRow, telemetry: Telemetry) -> None:
    """Report the failed checks. The row names each with its reason (`HealthChecksRequest.summary`)."""
    check = row.detail.partition(":")[0]
    telemetry.health_check_failed(machine.sku, check, machine.placement.image)
    _log.warning(
        "health_checks_failed",
        code=row.code,
        **machine_fields(machine),
        zone=machine.placement.zone,
        instance_type=machine.placement.instance_type,
        image=machine.placement.image,
        detail=row.detail,
    )


_ENDS = frozenset({MachineState.TERMINATING, MachineState.TERMINATED, MachineState.LOST})
_FAILURES_OF_ENDS = frozenset(
    {TerminationReason.DEADLINE, TerminationReason.LOST, TerminationReason.SHUT_DOWN}
)
_REFUSALS = frozenset(admission for admission in Admission if admission.is_refusal)
_ENDS_OF_RERUNS = {f"rerun_{outcome}": outcome for outcome in RerunOutcome}
