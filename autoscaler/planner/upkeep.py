"""What is due because time passed: deadlines, silences, lifetimes, unanswered calls, questions.

A machine is ended only on one of the six grounds: nothing was ever handed over to it, it said
that its runner has left, GitHub showed twice that its work is over, GitHub said that its job is
completed and showed twice that its registration is gone, its lifetime has passed, or an operator
confirmed of one that cannot be told that it is nobody's.
"""

import math

from autoscaler.model.catalogue import DEFAULT_LIFETIME
from autoscaler.model.cooldowns import active_cooldown, throttle_key
from autoscaler.model.fleet import READY_TRUSTED_FOR, Fleet
from autoscaler.model.identifiers import Seconds
from autoscaler.model.launch_requests import LaunchRequestState
from autoscaler.model.machines import Machine, MachineState, TerminationReason
from autoscaler.model.plan import (
    DeregisterRunner,
    MarkUnverified,
    ReadJob,
    ReadRun,
    ReadRunner,
    ResendLaunchRequest,
    Terminate,
)
from autoscaler.model.runners import RunnerState

FIRST_REPEAT: Seconds = 5.0
RAREST_REPEAT: Seconds = 60.0

_STAGE = {
    MachineState.LAUNCHED: "it did not say hello in time",
    MachineState.BOOTED: "its gate did not end in time",
    MachineState.READY: "it is ready and silent",
}
_PROVEN = {
    TerminationReason.OPERATOR: "an operator confirmed that it is nobody's",
    TerminationReason.FINISHED: "its job was completed half an hour ago, and its registration is gone",
}


def due_machines(fleet: Fleet) -> list[Terminate | MarkUnverified | ReadRunner]:
    """What each machine whose time has come needs. O(machines due)."""
    found: list[Terminate | MarkUnverified | ReadRunner] = []
    for machine in fleet.due.values():
        if machine.due is None or machine.due > fleet.now:
            break
        intent = _due(fleet, machine)
        if intent is not None:
            found.append(intent)
    return found


def _due(fleet: Fleet, machine: Machine) -> Terminate | MarkUnverified | ReadRunner | None:
    if machine.interruption is not None and machine.is_unused(fleet.started_at):
        return Terminate(
            machine.id, TerminationReason.INTERRUPTED, f"{machine.interruption} by its provider"
        )
    if fleet.is_assignment_unknown(machine):
        return MarkUnverified(machine.id)
    match machine.state:
        case MachineState.LAUNCHED | MachineState.BOOTED | MachineState.READY:
            return Terminate(machine.id, TerminationReason.DEADLINE, _STAGE[machine.state])
        case MachineState.ASSIGNED if machine.reason_code in _PROVEN:
            return Terminate(machine.id, machine.reason_code, _PROVEN[machine.reason_code])
        case MachineState.ASSIGNED if not machine.handed_over:
            return Terminate(
                machine.id, TerminationReason.DEADLINE, "it does not fetch its assignment"
            )
        case MachineState.FAILED if not machine.handed_over:
            return Terminate(machine.id, TerminationReason.SURPLUS, machine.reason)
        case MachineState.EXITED:
            return Terminate(machine.id, TerminationReason.EXITED, "its runner has left")
        case MachineState.TERMINATING:
            return Terminate(
                machine.id, machine.reason_code or TerminationReason.SURPLUS, "asked for again"
            )
        case MachineState.ASSIGNED | MachineState.FAILED:
            return _assigned(fleet, machine)
    return None


def _assigned(fleet: Fleet, machine: Machine) -> Terminate | ReadRunner:
    sku = fleet.catalogue.skus.get(machine.sku)
    lifetime = sku.lifetime if sku is not None else DEFAULT_LIFETIME
    start = machine.assigned_at if machine.assigned_at is not None else machine.since
    if fleet.now >= start + lifetime:
        return Terminate(machine.id, TerminationReason.LIFETIME, f"assigned {lifetime:g} s ago")
    if machine.finished_reads >= 2:
        return Terminate(
            machine.id,
            TerminationReason.SILENT_AND_FINISHED,
            "silent, and GitHub shows its work as over",
        )
    return ReadRunner(machine.id)


def expired_ready(fleet: Fleet) -> list[Terminate]:
    """Ready machines past their SKU's `idle.max_age`, or of a SKU that is configured no more."""
    strays = [
        Terminate(
            machine.id, TerminationReason.SURPLUS, "its SKU is not in the configuration any more"
        )
        for (sku, state), machines in fleet.by_state.items()
        if state is MachineState.READY and sku not in fleet.catalogue.skus
        for machine in machines.values()
        if machine.agent_seen
    ]
    return strays + [
        Terminate(machine.id, TerminationReason.MAX_AGE, f"ready for {sku.idle.max_age:g} s")
        for sku in fleet.catalogue.skus.values()
        for machine in fleet.machines_in(sku.name, MachineState.READY)
        if machine.agent_seen
        and fleet.now - (machine.ready_at or machine.since) >= sku.idle.max_age
    ]


def unanswered_calls(fleet: Fleet) -> list[ResendLaunchRequest]:
    """Calls of unknown outcome whose turn for a repeat has come, within ten minutes.

    No more than their providers take now: the rest has its turn when there are calls again.
    """
    found = []
    left = {provider: tokens.calls for provider, tokens in fleet.launch_tokens.items()}
    for request in fleet.launch_requests.values():
        if request.state is not LaunchRequestState.UNKNOWN or request.sent_at is None:
            continue
        wait = min(FIRST_REPEAT * 2.0 ** min(request.attempts - 1, 8), RAREST_REPEAT)
        last = request.last_sent_at if request.last_sent_at is not None else request.sent_at
        throttled = active_cooldown(fleet.cooldowns, throttle_key(request.provider), fleet.now)
        if fleet.now < last + wait or request.is_given_up(fleet.now) or throttled is not None:
            continue
        calls = left.get(request.provider, math.inf)
        if calls >= 1.0:
            left[request.provider] = calls - 1.0
            found.append(ResendLaunchRequest(request.id))
    return found


def questions(fleet: Fleet) -> list[ReadJob | ReadRun]:
    """Jobs that GitHub must be asked about (disputed or held), and runs of unknown head repository."""
    jobs = [ReadJob(job) for job, at in sorted(fleet.reads.items()) if at <= fleet.now]
    return jobs + [
        ReadRun(next(iter(fleet.unread[run].values())).repository, run)
        for run in sorted(fleet.unread)
        if run not in fleet.run_questions or fleet.run_questions[run].due <= fleet.now
    ]


def lost_configurations(fleet: Fleet) -> list[DeregisterRunner]:
    """Registrations whose secret went with an earlier process before it was handed over."""
    return [
        DeregisterRunner(runner.name, "its configuration was lost in a restart")
        for runners in fleet.deregistrable.values()
        for runner in runners.values()
        if runner.named_at < fleet.started_at
        and runner.state in (RunnerState.NAMED, RunnerState.REGISTERED)
    ]


def trusted_ready(fleet: Fleet, machine: Machine) -> bool:
    """Whether a machine ready before a restart still counts as one that will be ready."""
    return not machine.agent_seen and fleet.now < fleet.started_at + READY_TRUSTED_FOR
