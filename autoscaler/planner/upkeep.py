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
from autoscaler.model.cooldowns import active_cooldown, throttle_key
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.due import Due, Look
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import (
    BOOTING_STATES,
    MachineState,
    TerminationReason,
)
from autoscaler.model.operators import quarantine_of
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


def due_machines(fleet: Fleet) -> list[Terminate | MarkUnverified | ReadRunner]:
    """Return the intent for each machine for which something is due now. O(machines due)."""
    return [_intent(due) for due in fleet.due]


def _intent(due: Due) -> Terminate | MarkUnverified | ReadRunner:
    match due.why:
        case Look.READ_RUNNER:
            return ReadRunner(due.machine)
        case Look.MARK_UNVERIFIED:
            return MarkUnverified(due.machine)
        case TerminationReason():
            return Terminate(due.machine, due.why, due.text)


def late_boots(fleet: Fleet, terminations: Iterable[Terminate]) -> set[MachineId]:
    """Return the machines that are terminated because they did not become ready in time."""
    late = (one.machine for one in terminations if one.reason_code is TerminationReason.DEADLINE)
    return {machine for machine in late if fleet.machines[machine].progress.ready_at is None}


def unconfigured_machines(fleet: Fleet) -> list[Terminate]:
    """Return terminations of ready machines whose SKU is not in the configuration any more."""
    skus = fleet.catalogue.skus
    return [
        Terminate(machine.id, TerminationReason.SURPLUS, "its SKU is no longer configured")
        for (sku, state), machines in fleet.by_state.items()
        if sku not in skus and state is MachineState.READY
        for machine in machines.values()
        if machine.work.agent_seen and quarantine_of(fleet.operator_holds, machine.id) is None
    ]


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
    jobs = [ReadJob(job) for job in sorted(fleet.reads) if fleet.reads[job].due <= fleet.now]
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
