"""Plans what is due by time: deadlines, lifetimes, launch requests to send again, reads from GitHub.

A machine is terminated only for one of these reasons:

- it never fetched an assignment;
- it reported that its runner exited;
- GitHub showed twice that its runner has no job any more;
- GitHub reported its job as completed, and showed twice that its runner is not registered;
- its lifetime is over;
- an operator released or drained it.
"""

import math
from collections.abc import Collection, Iterable

from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import DEFAULT_LIFETIME
from autoscaler.model.cooldowns import Cooldown, active_cooldown, throttle_key
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import (
    BOOTING_STATES,
    KEPT_IN_QUARANTINE,
    RELEASED_STATES,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.operator_holds import quarantine_of
from autoscaler.model.plan import (
    DeregisterRunner,
    MarkUnverified,
    ReadJob,
    ReadRun,
    ReadRunner,
    ResendLaunchRequest,
    Terminate,
)

RESENDS = Backoff(5.0, 60.0)

_NOT_ENDED = frozenset({*BOOTING_STATES, MachineState.READY, MachineState.ASSIGNED})

_STAGE = {
    MachineState.LAUNCHED: "no attestation before the boot deadline",
    MachineState.BOOTED: "its health checks did not finish in time",
    MachineState.READY: "it was ready, and sent no heartbeat in time",
}
_FINISHED = "its job completed half an hour ago, and its runner is not registered any more"
_OPERATOR = TerminationReason.OPERATOR


def due_machines(fleet: Fleet) -> list[Terminate | MarkUnverified | ReadRunner]:
    """Return the intent for each machine whose deadline has passed. O(machines due)."""
    found: list[Terminate | MarkUnverified | ReadRunner] = []
    for machine in fleet.due.values():
        if machine.due is None or machine.due > fleet.now:
            break
        intent = _due(fleet, machine)
        if intent is not None:
            found.append(intent)
    return found


def late_boots(fleet: Fleet, terminations: Iterable[Terminate]) -> set[MachineId]:
    """Return the machines that are terminated because they did not become ready in time."""
    late = (one.machine for one in terminations if one.reason_code is TerminationReason.DEADLINE)
    return {machine for machine in late if fleet.machines[machine].progress.ready_at is None}


def _due(fleet: Fleet, machine: Machine) -> Terminate | MarkUnverified | ReadRunner | None:
    if machine.state in RELEASED_STATES and machine.termination.reason is _OPERATOR:
        return Terminate(machine.id, _OPERATOR, "an operator released it")
    quarantine = _quarantine(fleet, machine)
    if quarantine is not None and fleet.now < quarantine.until:
        return None
    return _due_by_state(fleet, machine)


def _due_by_state(fleet: Fleet, machine: Machine) -> Terminate | MarkUnverified | ReadRunner | None:
    if machine.interruption.kind is not None and fleet.evidence.proves_unused(machine):
        return Terminate(
            machine.id,
            TerminationReason.INTERRUPTED,
            f"{machine.interruption.kind} by its provider",
        )
    if fleet.evidence.is_missing_for(machine) or fleet.evidence.has_no_list_with(machine):
        return MarkUnverified(machine.id)
    match machine.state:
        case MachineState.LAUNCHED | MachineState.BOOTED | MachineState.READY:
            return _unassigned(fleet, machine)
        case MachineState.ASSIGNED if machine.termination.reason is TerminationReason.FINISHED:
            return Terminate(machine.id, TerminationReason.FINISHED, _FINISHED)
        case MachineState.ASSIGNED if not machine.work.may_run_job:
            return Terminate(
                machine.id, TerminationReason.DEADLINE, "it did not fetch its assignment in time"
            )
        case MachineState.FAILED if not machine.work.may_run_job:
            # A machine without a failure is one too many: its launch request has no slot for it.
            is_surplus = machine.failure is None
            found = TerminationReason.SURPLUS if is_surplus else TerminationReason.FAILED
            return Terminate(machine.id, machine.termination.reason or found, machine.reason)
        case MachineState.EXITED:
            return Terminate(machine.id, TerminationReason.EXITED, "its runner exited")
        case MachineState.TERMINATING:
            return Terminate(
                machine.id,
                machine.termination.reason or TerminationReason.SURPLUS,
                "the earlier request had no effect",
            )
        case MachineState.ASSIGNED | MachineState.FAILED:
            return _assigned(fleet, machine)
    return None


def _unassigned(fleet: Fleet, machine: Machine) -> Terminate:
    sku = fleet.catalogue.skus.get(machine.sku)
    is_ready = machine.state is MachineState.READY
    if _quarantine(fleet, machine) is not None:
        return Terminate(machine.id, TerminationReason.LIFETIME, "its quarantine is over")
    # A ready machine whose agent is silent is due before its age.
    if is_ready and sku and machine.due == machine.first_ready_at + sku.idle.max_age:
        return Terminate(machine.id, TerminationReason.MAX_AGE, f"ready for {sku.idle.max_age:g} s")
    if is_ready and sku and machine.due in [option.until for option in sku.launch_options]:
        text = "the provider takes its capacity back soon"
        return Terminate(machine.id, TerminationReason.SURPLUS, text)
    return Terminate(machine.id, TerminationReason.DEADLINE, _STAGE[machine.state])


def _assigned(fleet: Fleet, machine: Machine) -> Terminate | ReadRunner:
    sku = fleet.catalogue.skus.get(machine.sku)
    lifetime = sku.lifetime if sku is not None else DEFAULT_LIFETIME
    start = (
        machine.progress.assigned_at if machine.progress.assigned_at is not None else machine.since
    )
    if fleet.now >= start + lifetime:
        return Terminate(machine.id, TerminationReason.LIFETIME, f"assigned {lifetime:g} s ago")
    if machine.work.finished_reads >= 2:
        return Terminate(
            machine.id,
            TerminationReason.SILENT_AND_FINISHED,
            "no heartbeat, and GitHub shows that its runner has no job any more",
        )
    return ReadRunner(machine.id)


def unconfigured_machines(fleet: Fleet) -> list[Terminate]:
    """Return terminations of ready machines whose SKU is not in the configuration any more."""
    skus = fleet.catalogue.skus
    return [
        Terminate(machine.id, TerminationReason.SURPLUS, "its SKU is no longer configured")
        for (sku, state), machines in fleet.by_state.items()
        if sku not in skus and state is MachineState.READY
        for machine in machines.values()
        if machine.work.agent_seen and _quarantine(fleet, machine) is None
    ]


def _quarantine(fleet: Fleet, machine: Machine) -> Cooldown | None:
    """Return the quarantine that keeps a machine, or None."""
    kept = machine.state in KEPT_IN_QUARANTINE and machine.occupies
    return quarantine_of(fleet.operator_holds, machine.id) if kept else None


def requests_to_resend(
    fleet: Fleet, leaving: Collection[MachineId] = ()
) -> list[ResendLaunchRequest]:
    """Return the launch requests of unknown outcome that are due to be sent again.

    No more than the launch rates of their providers allow now. `leaving` are machines that this plan
    terminates.
    """
    found = []
    left = {provider: tokens.calls for provider, tokens in fleet.launch_tokens.items()}
    for request in fleet.launch_requests.values():
        if request.state is not LaunchRequestState.UNKNOWN or request.sent_at is None:
            continue
        wait = RESENDS.delay(request.attempts - 1)
        last = request.last_sent_at if request.last_sent_at is not None else request.sent_at
        throttled = active_cooldown(fleet.cooldowns, throttle_key(request.provider), fleet.now)
        if fleet.now < last + wait or request.is_given_up(fleet.now) or throttled is not None:
            continue
        if _has_ended_machine(fleet, request, leaving):
            continue
        allowed = left.get(request.provider, math.inf)
        if allowed >= 1.0:
            left[request.provider] = allowed - 1.0
            found.append(ResendLaunchRequest(request.id))
    return found


def _has_ended_machine(
    fleet: Fleet, request: LaunchRequest, leaving: Collection[MachineId]
) -> bool:
    """Return whether a machine of the request has ended, or is to be terminated.

    A pod's name is free after its deletion, so that a repeat would create the pod a second time (Kubernetes
    documentation, "Object Names and IDs": a name is unique at a time). Listings settle the other slots.
    """
    slots = (fleet.machines.get(slot) for slot in request.slots)
    return any(
        machine is None or machine.state not in _NOT_ENDED or machine.id in leaving
        for machine in slots
    )


def reads_due(fleet: Fleet) -> list[ReadJob | ReadRun]:
    """Return reads of disputed jobs, of jobs on hold, and of runs whose head repository is unknown."""
    jobs = [ReadJob(job) for job, at in sorted(fleet.reads.items()) if at <= fleet.now]
    return jobs + [
        ReadRun(next(iter(fleet.unread[run].values())).repository, run)
        for run in sorted(fleet.unread)
        if run not in fleet.run_questions or fleet.run_questions[run].due <= fleet.now
    ]


def lost_configurations(fleet: Fleet) -> list[DeregisterRunner]:
    """Return deregistrations of runners whose JIT configuration an earlier process lost."""
    return [
        DeregisterRunner(runner.name, "its JIT configuration was lost in a restart")
        for runners in fleet.deregistrable.values()
        for runner in runners.values()
        if runner.named_at < fleet.started_at
        and runner.state in (RunnerState.NAMED, RunnerState.REGISTERED)
    ]
