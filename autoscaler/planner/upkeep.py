"""What is due because time passed: deadlines, silences, lifetimes, unanswered calls, questions.

A machine is ended only on one of the six grounds: nothing was ever handed over to it, it said
that its runner has left, GitHub showed twice that its work is over, GitHub said that its job is
completed and showed twice that its registration is gone, its lifetime has passed, or an operator
confirmed of one that cannot be told that it is nobody's.
"""

import math

from autoscaler.model.calls import CallState
from autoscaler.model.catalogue import DEFAULT_LIFETIME
from autoscaler.model.cooldowns import held, throttle_key
from autoscaler.model.fleet import PARKED_BELIEVED_FOR, Fleet
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines import EndGround, Machine, MachineState
from autoscaler.model.plan import Doubt, End, Examine, ReadJob, ReadRun, RepeatCall, WithdrawRunner
from autoscaler.model.runners import RunnerState

FIRST_REPEAT: Seconds = 5.0
RAREST_REPEAT: Seconds = 60.0

_STAGE = {
    MachineState.LAUNCHED: "it did not say hello in time",
    MachineState.BOOTED: "its gate did not end in time",
    MachineState.PARKED: "it is parked and silent",
}
_PROVEN = {
    EndGround.OPERATOR: "an operator confirmed that it is nobody's",
    EndGround.FINISHED: "its job was completed half an hour ago, and its registration is gone",
}


def due_machines(fleet: Fleet) -> list[End | Doubt | Examine]:
    """What each machine whose time has come needs. O(machines due)."""
    found: list[End | Doubt | Examine] = []
    for machine in fleet.due.values():
        if machine.due is None or machine.due > fleet.now:
            break
        intent = _due(fleet, machine)
        if intent is not None:
            found.append(intent)
    return found


def _due(fleet: Fleet, machine: Machine) -> End | Doubt | Examine | None:
    if machine.interruption is not None and machine.is_unused(fleet.started_at):
        return End(machine.id, EndGround.INTERRUPTED, f"{machine.interruption} by its provider")
    if fleet.is_untold(machine):
        return Doubt(machine.id)
    match machine.state:
        case MachineState.LAUNCHED | MachineState.BOOTED | MachineState.PARKED:
            return End(machine.id, EndGround.DEADLINE, _STAGE[machine.state])
        case MachineState.GRANTED if machine.ground in _PROVEN:
            return End(machine.id, machine.ground, _PROVEN[machine.ground])
        case MachineState.GRANTED if not machine.handed_over:
            return End(machine.id, EndGround.DEADLINE, "it does not fetch its grant")
        case MachineState.FAILED if not machine.handed_over:
            return End(machine.id, EndGround.SURPLUS, machine.reason)
        case MachineState.EXITED:
            return End(machine.id, EndGround.EXITED, "its runner has left")
        case MachineState.ENDING:
            return End(machine.id, machine.ground or EndGround.SURPLUS, "asked for again")
        case MachineState.GRANTED | MachineState.FAILED:
            return _granted(fleet, machine)
    return None


def _granted(fleet: Fleet, machine: Machine) -> End | Examine:
    sku = fleet.catalogue.skus.get(machine.sku)
    lifetime = sku.lifetime if sku is not None else DEFAULT_LIFETIME
    start = machine.granted_at if machine.granted_at is not None else machine.since
    if fleet.now >= start + lifetime:
        return End(machine.id, EndGround.LIFETIME, f"granted {lifetime:g} s ago")
    if machine.finished_reads >= 2:
        return End(
            machine.id, EndGround.SILENT_AND_FINISHED, "silent, and GitHub shows its work as over"
        )
    return Examine(machine.id)


def expired_parked(fleet: Fleet) -> list[End]:
    """Parked machines past their SKU's `idle.max_age`, or of a SKU that is configured no more."""
    strays = [
        End(machine.id, EndGround.SURPLUS, "its SKU is not in the configuration any more")
        for (sku, state), machines in fleet.by_state.items()
        if state is MachineState.PARKED and sku not in fleet.catalogue.skus
        for machine in machines.values()
        if machine.confirmed
    ]
    return strays + [
        End(machine.id, EndGround.MAX_AGE, f"parked for {sku.idle.max_age:g} s")
        for sku in fleet.catalogue.skus.values()
        for machine in fleet.machines_in(sku.name, MachineState.PARKED)
        if machine.confirmed
        and fleet.now - (machine.parked_at or machine.since) >= sku.idle.max_age
    ]


def unanswered_calls(fleet: Fleet) -> list[RepeatCall]:
    """Calls of unknown outcome whose turn for a repeat has come, within ten minutes.

    No more than their providers take now: the rest has its turn when there are calls again.
    """
    found = []
    left = {provider: tokens.calls for provider, tokens in fleet.launch_tokens.items()}
    for call in fleet.calls.values():
        if call.state is not CallState.UNKNOWN or call.sent_at is None:
            continue
        wait = min(FIRST_REPEAT * 2.0 ** min(call.attempts - 1, 8), RAREST_REPEAT)
        last = call.last_sent_at if call.last_sent_at is not None else call.sent_at
        throttled = held(fleet.cooldowns, throttle_key(call.provider), fleet.now)
        if fleet.now < last + wait or call.is_given_up(fleet.now) or throttled is not None:
            continue
        calls = left.get(call.provider, math.inf)
        if calls >= 1.0:
            left[call.provider] = calls - 1.0
            found.append(RepeatCall(call.id))
    return found


def questions(fleet: Fleet) -> list[ReadJob | ReadRun]:
    """Jobs that GitHub must be asked about (disputed or held), and runs of unknown head repository."""
    jobs = [ReadJob(job) for job, at in sorted(fleet.reads.items()) if at <= fleet.now]
    return jobs + [
        ReadRun(next(iter(fleet.unread[run].values())).repository, run)
        for run in sorted(fleet.unread)
        if run not in fleet.run_questions or fleet.run_questions[run].due <= fleet.now
    ]


def lost_configurations(fleet: Fleet) -> list[WithdrawRunner]:
    """Registrations whose secret went with an earlier process before it was handed over."""
    return [
        WithdrawRunner(runner.name, "its configuration was lost in a restart")
        for runners in fleet.withdrawable.values()
        for runner in runners.values()
        if runner.named_at < fleet.started_at
        and runner.state in (RunnerState.NAMED, RunnerState.MINTED)
    ]


def believed_parked(fleet: Fleet, machine: Machine) -> bool:
    """Whether a machine parked before a restart still counts as one that will be parked."""
    return not machine.confirmed and fleet.now < fleet.started_at + PARKED_BELIEVED_FOR
