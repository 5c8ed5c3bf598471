"""Encodes jobs, launch requests, machines and runners as JSON text, and decodes them.

`decode_x(encode_x(x)) == x` for every record. Each field is a key, and every key is required.
"""

import json
from contextlib import suppress
from math import isfinite

import msgspec

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.demand import DemandClass
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import (
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.interruptions import NoticeKind
from autoscaler.model.jobs import Admission, Job, JobState
from autoscaler.model.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines import (
    ExitReason,
    Interruption,
    Machine,
    MachineState,
    Placement,
    Progress,
    Termination,
    TerminationReason,
    WorkEvidence,
)
from autoscaler.model.runners import Runner, RunnerState
from autoscaler.store.fields import Fields


def encode_job(job: Job) -> str:
    """Return JSON text.

    Raises: ValueError for a number that is not finite, as all encoders here.
    """
    return record_text(
        {
            "id": job.id,
            "repository": job.repository,
            "labels": job.labels,
            "demand": None if job.demand is None else _demand(job.demand),
            "state": job.state,
            "queued_at": job.queued_at,
            "updated_at": job.updated_at,
            "name": job.name,
            "workflow": job.workflow,
            "run_id": job.run_id,
            "run_attempt": job.run_attempt,
            "runner_name": job.runner_name,
            "started_at": job.started_at,
            "completed_at": job.completed_at,
            "conclusion": job.conclusion,
            "disputed": job.disputed,
            "read_at": job.read_at,
            "passed_over": job.passed_over,
            "probe_at": job.probe_at,
            "from_fork": job.from_fork,
            "admission": job.admission,
        }
    )


def decode_job(text: str) -> Job:
    """Return the job that `encode_job` encoded.

    Raises: CorruptRecordError, as all decoders here.
    """
    of = Fields.parse(text)
    demand = of.part_or_none("demand")
    runner_name = of.text_or_none("runner_name")
    return Job(
        id=JobId(of.whole("id")),
        repository=of.text("repository"),
        labels=of.texts("labels"),
        demand=None if demand is None else _read_demand(demand),
        state=of.choice("state", JobState),
        queued_at=of.number("queued_at"),
        updated_at=of.number("updated_at"),
        name=of.text("name"),
        workflow=of.text("workflow"),
        run_id=of.whole_or_none("run_id"),
        run_attempt=of.whole("run_attempt"),
        runner_name=None if runner_name is None else RunnerName(runner_name),
        started_at=of.number_or_none("started_at"),
        completed_at=of.number_or_none("completed_at"),
        conclusion=of.text_or_none("conclusion"),
        disputed=of.flag("disputed"),
        read_at=of.number_or_none("read_at"),
        passed_over=tuple(RunnerName(name) for name in of.texts("passed_over")),
        probe_at=of.number_or_none("probe_at"),
        from_fork=of.flag_or_none("from_fork"),
        admission=of.choice("admission", Admission),
    )


def encode_launch_request(request: LaunchRequest) -> str:
    """Return JSON text. It contains the request's body unchanged, so that it can be sent again."""
    return record_text(
        {
            "id": request.id,
            "sku": request.sku,
            "provider": request.provider,
            "option": request.option,
            "capacity_type": request.capacity_type,
            "offerings": request.offerings,
            "slots": request.slots,
            "token": request.token,
            "body": request.body,
            "state": request.state,
            "created_at": request.created_at,
            "sent_at": request.sent_at,
            "last_sent_at": request.last_sent_at,
            "attempts": request.attempts,
            "settled_at": request.settled_at,
            "full_listings": request.full_listings,
            "last_listed_at": request.last_listed_at,
            "failure": request.failure,
            "reason": request.reason,
        }
    )


def decode_launch_request(text: str) -> LaunchRequest:
    """Return the launch request that `encode_launch_request` encoded."""
    of = Fields.parse(text)
    return LaunchRequest(
        id=LaunchRequestId(of.text("id")),
        sku=SkuName(of.text("sku")),
        provider=ProviderName(of.text("provider")),
        option=of.whole("option"),
        capacity_type=of.choice("capacity_type", CapacityType),
        offerings=of.texts("offerings"),
        slots=tuple(MachineId(slot) for slot in of.texts("slots")),
        token=of.text("token"),
        body=of.text("body"),
        state=of.choice("state", LaunchRequestState),
        created_at=of.number("created_at"),
        sent_at=of.number_or_none("sent_at"),
        last_sent_at=of.number_or_none("last_sent_at"),
        attempts=of.whole("attempts"),
        settled_at=of.number_or_none("settled_at"),
        full_listings=of.whole("full_listings"),
        last_listed_at=of.number_or_none("last_listed_at"),
        failure=of.choice_or_none("failure", FailureClass),
        reason=of.text("reason"),
    )


def encode_machine(machine: Machine) -> str:
    """Return JSON text."""
    return record_text(
        {
            "id": machine.id,
            "sku": machine.sku,
            "provider": machine.provider,
            "launch_request": machine.launch_request,
            "slot": machine.slot,
            "state": machine.state,
            "since": machine.since,
            "created_at": machine.created_at,
            "dollars_per_hour": machine.placement.dollars_per_hour,
            "quota_usage": machine.placement.quota_usage,
            "due": machine.due,
            "provider_id": machine.placement.provider_id,
            "instance_type": machine.placement.instance_type,
            "zone": machine.placement.zone,
            "capacity_type": machine.placement.capacity_type,
            "image": machine.placement.image,
            "launch_time": machine.placement.launch_time,
            "nonce_hash": machine.nonce_hash,
            "stage": machine.progress.stage,
            "booted_at": machine.progress.booted_at,
            "ready_at": machine.progress.ready_at,
            "assigned_at": machine.progress.assigned_at,
            "ended_at": machine.progress.ended_at,
            "last_seen": machine.work.last_seen,
            "runner": machine.work.runner,
            "tries": machine.work.tries,
            "handed_over": machine.work.handed_over,
            "unverified": machine.work.unverified,
            "agent_seen": machine.work.agent_seen,
            "absence": machine.absence,
            "absent_since": machine.absent_since,
            "finished_at": machine.work.finished_at,
            "finished_reads": machine.work.finished_reads,
            "failure": machine.failure,
            "reason": machine.reason,
            "reason_code": machine.termination.reason,
            "terminate_attempts": machine.termination.attempts,
            "terminate_error": machine.termination.error,
            "provider_state": machine.termination.provider_state,
            "interruption": machine.interruption.kind,
            "interrupted_at": machine.interruption.at,
            "taken_at": machine.interruption.taken_at,
            "runner_version": machine.progress.runner_version,
            "exit_reason": machine.work.exit_reason,
            "runner_read_at": machine.work.read_at,
            "unregistered_at": machine.work.unregistered_at,
        }
    )


def decode_machine(text: str) -> Machine:
    """Return the machine that `encode_machine` encoded."""
    of = Fields.parse(text)
    provider_id = of.text_or_none("provider_id")
    runner = of.text_or_none("runner")
    return Machine(
        id=MachineId(of.text("id")),
        sku=SkuName(of.text("sku")),
        provider=ProviderName(of.text("provider")),
        launch_request=LaunchRequestId(of.text("launch_request")),
        slot=of.whole("slot"),
        created_at=of.number("created_at"),
        state=of.choice("state", MachineState),
        since=of.number("since"),
        placement=Placement(
            dollars_per_hour=of.number("dollars_per_hour"),
            quota_usage=of.amounts("quota_usage"),
            provider_id=None if provider_id is None else ProviderMachineId(provider_id),
            instance_type=of.text("instance_type"),
            zone=of.text("zone"),
            capacity_type=of.text("capacity_type"),
            image=of.text("image"),
            launch_time=of.text("launch_time"),
        ),
        reason=of.text("reason"),
        failure=of.choice_or_none("failure", FailureClass),
        due=of.number_or_none("due"),
        absence=of.number("absence"),
        absent_since=of.number_or_none("absent_since"),
        nonce_hash=of.text("nonce_hash"),
        progress=Progress(
            stage=of.text("stage"),
            booted_at=of.number_or_none("booted_at"),
            ready_at=of.number_or_none("ready_at"),
            assigned_at=of.number_or_none("assigned_at"),
            ended_at=of.number_or_none("ended_at"),
            runner_version=of.text("runner_version"),
        ),
        work=WorkEvidence(
            last_seen=of.number_or_none("last_seen"),
            agent_seen=of.flag("agent_seen"),
            runner=None if runner is None else RunnerName(runner),
            tries=of.whole("tries"),
            handed_over=of.flag("handed_over"),
            unverified=of.flag("unverified"),
            exit_reason=of.choice_or_none("exit_reason", ExitReason),
            finished_at=of.number_or_none("finished_at"),
            finished_reads=of.whole("finished_reads"),
            read_at=of.number_or_none("runner_read_at"),
            unregistered_at=of.number_or_none("unregistered_at"),
        ),
        termination=Termination(
            reason=of.choice_or_none("reason_code", TerminationReason),
            attempts=of.whole("terminate_attempts"),
            error=of.text("terminate_error"),
            provider_state=of.text("provider_state"),
        ),
        interruption=Interruption(
            kind=of.choice_or_none("interruption", NoticeKind),
            at=of.number_or_none("interrupted_at"),
            taken_at=of.number_or_none("taken_at"),
        ),
    )


def encode_runner(runner: Runner) -> str:
    """Return JSON text."""
    return record_text(
        {
            "name": runner.name,
            "machine": runner.machine,
            "demand": _demand(runner.demand),
            "state": runner.state,
            "since": runner.since,
            "named_at": runner.named_at,
            "github_id": runner.github_id,
            "handed_over_at": runner.handed_over_at,
            "listening_at": runner.listening_at,
            "job": runner.job,
            "passed_over": runner.passed_over,
            "retry_at": runner.retry_at,
            "reason": runner.reason,
        }
    )


def decode_runner(text: str) -> Runner:
    """Return the runner that `encode_runner` encoded."""
    of = Fields.parse(text)
    job = of.whole_or_none("job")
    return Runner(
        name=RunnerName(of.text("name")),
        machine=MachineId(of.text("machine")),
        demand=_read_demand(of.part("demand")),
        state=of.choice("state", RunnerState),
        since=of.number("since"),
        named_at=of.number("named_at"),
        github_id=of.whole_or_none("github_id"),
        handed_over_at=of.number_or_none("handed_over_at"),
        listening_at=of.number_or_none("listening_at"),
        job=None if job is None else JobId(job),
        passed_over=of.flag("passed_over"),
        retry_at=of.number_or_none("retry_at"),
        reason=of.text("reason"),
    )


def _demand(demand: DemandClass) -> dict[str, object]:
    return {
        "scope": demand.scope,
        "runner_group": demand.runner_group,
        "labels": demand.labels,
        "skus": demand.skus,
    }


def _read_demand(of: Fields) -> DemandClass:
    return DemandClass(
        scope=of.text("scope"),
        runner_group=of.text("runner_group"),
        labels=of.texts("labels"),
        skus=tuple(SkuName(sku) for sku in of.texts("skus")),
    )


def record_text(values: dict[str, object]) -> str:
    """Return a record's fields as JSON text.

    Raises: ValueError for a number that is not finite.
    """
    for value in values.values():
        # msgspec would write null.
        if value.__class__ is float and not isfinite(value):
            raise ValueError("a number that is not finite")
    with suppress(UnicodeEncodeError):
        text = _encode(values)
        if text.isascii():
            return text.decode()
    # Escaped as ASCII, since a lone surrogate in GitHub's JSON must neither fail nor change.
    return json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


_encode = msgspec.json.Encoder().encode
"""Ten times as fast as `json.dumps`."""
