"""Adjusts the stored records when the controller starts."""

from dataclasses import replace
from functools import reduce

from autoscaler.ledger.machines import launch_requests, operator_holds
from autoscaler.ledger.machines.reruns import GIVEN_UP_AFTER
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import LaunchTokens
from autoscaler.model.changes import Record
from autoscaler.model.events import ControllerStarted, LaunchOutcomeUnknown, LaunchRequestCancelled
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun, RerunState
from autoscaler.model.machines.launch_requests import (
    REPEAT_WINDOW,
    LaunchRequest,
    LaunchRequestState,
)
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.model.operators import is_operator_hold

BEFORE_THE_START: Seconds = 0.001
"""Stored moments are at least this long before the start, even if the host's clock was set back."""

_AGEING = frozenset(
    {
        MachineState.LAUNCHED,
        MachineState.BOOTED,
        MachineState.READY,
        MachineState.ASSIGNED,
        MachineState.EXITED,
    }
)

HAPPENED: dict[type[Record], tuple[str, ...]] = {
    Machine: (
        "since",
        "created_at",
        "progress.booted_at",
        "progress.ready_at",
        "progress.assigned_at",
        "progress.ended_at",
        "work.last_seen",
        "absent_since",
        "work.finished_at",
        "work.read_at",
        "work.unregistered_at",
        "interruption.taken_at",
    ),
    Runner: ("since", "named_at", "configuration_sent_at", "listening_at"),
    LaunchRequest: ("created_at", "sent_at", "last_sent_at", "settled_at", "last_listed_at"),
    Job: ("updated_at", "read_at", "completed_at"),
    Rerun: ("created_at", "ended_at"),
}
"""Fields with moments in the past, by the controller's clock or GitHub's."""

TO_COME: dict[type[Record], tuple[str, ...]] = {
    Machine: ("due",),
    Runner: ("retry_at",),
    LaunchRequest: (),
    Job: ("probe_at",),
    Rerun: ("due",),
}
"""Fields with moments in the future, when the controller looks again. Too early does no harm."""

AWAITED: Seconds = 900.0
"""Maximum delay that is kept over a start, because the clock may have been set back."""


def on_controller_started(state: LedgerState, event: ControllerStarted) -> None:
    """Continue after `absence` seconds of downtime."""
    state.started_at, state.was_away = event.at, event.absence
    _correct_moments(state, event.at)
    operator_holds.end_holds_of_unknown_machines(state, event.at)
    for machine in tuple(state.machines.values()):
        if machine.state in _AGEING:
            with state.changing(machine):
                machine.absence += event.absence
                machine.work.agent_seen = False
    for request in tuple(state.open_launch_requests.values()):
        _resume_launch_request(state, request, event.at)
    for runner in tuple(state.runners.values()):
        if runner.state is RunnerState.DEREGISTERING:
            with state.changing(runner):
                known = runner.github_id is not None
                state.enter(runner, RunnerState.REGISTERED if known else RunnerState.NAMED)
    for account in {runner.demand.account for runner in state.runners.values()}:
        level = state.catalogue.registration.refilled(0.0, event.absence)
        state.registration_levels[account] = (level, event.at)
    for provider in {request.provider for request in state.launch_requests.values()}:
        if (rate := state.catalogue.launch_rates.get(provider)) is not None:
            gained = rate.refilled(LaunchTokens(0.0, 0.0), event.absence)
            state.launch_levels[provider] = (gained, event.at)


def _correct_moments(state: LedgerState, at: Instant) -> None:
    """Correct moments after the start, in case the host's clock was set back."""
    kept: tuple[Record, ...] = (
        *state.machines.values(),
        *state.runners.values(),
        *state.launch_requests.values(),
        *state.jobs.values(),
        *state.reruns.values(),
    )
    for record in kept:
        # A launch request from the future must not be repeated.
        back = REPEAT_WINDOW if isinstance(record, LaunchRequest) else BEFORE_THE_START
        _limit_moments(state, record, HAPPENED[type(record)], at, at - back)
        latest = _latest(record, at)
        _limit_moments(state, record, TO_COME[type(record)], latest, latest)
    for cooldown in tuple(state.cooldowns.values()):
        # A hold of an operator ends when an operator resumes its target.
        if cooldown.until > at + AWAITED and not is_operator_hold(cooldown.key):
            state.set_cooldown(replace(cooldown, until=at + AWAITED))


def _latest(record: Record, at: Instant) -> Instant:
    """Return the latest moment at which a delay of this record may end. A rerun may wait a week for its job."""
    if isinstance(record, Rerun) and record.state is RerunState.WAITING:
        return record.created_at + GIVEN_UP_AFTER
    return at + AWAITED


def _limit_moments(
    state: LedgerState, record: Record, names: tuple[str, ...], after: Instant, to: Instant
) -> None:
    for path in names:
        *parts, name = path.split(".")
        part = reduce(getattr, parts, record)
        moment = getattr(part, name)
        if moment is not None and moment > after:
            with state.changing(record):
                setattr(part, name, to)


def _resume_launch_request(state: LedgerState, request: LaunchRequest, at: Instant) -> None:
    if request.state is LaunchRequestState.RECORDED:
        launch_requests.on_launch_request_cancelled(
            state, LaunchRequestCancelled(at, request.id, "not sent before a restart")
        )
    elif request.state is LaunchRequestState.SENT:
        launch_requests.on_launch_outcome_unknown(
            state, LaunchOutcomeUnknown(at, request.id, "the controller restarted")
        )
