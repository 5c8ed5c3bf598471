"""What a start makes of the records that the store kept: nobody was here to see them go on.

It never decides what is sent, ended or granted because of that.
"""

from autoscaler.ledger import calls, deadlines
from autoscaler.ledger.state import LedgerState
from autoscaler.model.calls import Call, CallState
from autoscaler.model.catalogue import LaunchTokens
from autoscaler.model.changes import Record
from autoscaler.model.events import CallOutcomeUnknown, CallWithdrawn, ControllerStarted
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs import Job
from autoscaler.model.machines import Machine, MachineState
from autoscaler.model.runners import Runner, RunnerState

BEFORE_THE_START: Seconds = 0.001
"""What is in the store came before the start, whatever the host's clock said then."""

_AGEING = frozenset(
    {
        MachineState.LAUNCHED,
        MachineState.BOOTED,
        MachineState.PARKED,
        MachineState.GRANTED,
        MachineState.EXITED,
    }
)

HAPPENED: dict[type[Record], tuple[str, ...]] = {
    Machine: (
        "since",
        "created_at",
        "booted_at",
        "parked_at",
        "granted_at",
        "ended_at",
        "last_seen",
        "absent_since",
        "finished_at",
        "interrupted_at",
        "taken_at",
    ),
    Runner: ("since", "named_at", "handed_over_at", "acknowledged_at"),
    Call: ("created_at", "sent_at", "last_sent_at", "settled_at", "swept_at"),
    Job: ("updated_at", "read_at"),
}
"""The times that our own clock gave. When something is due is none of them."""


def on_controller_started(state: LedgerState, event: ControllerStarted) -> None:
    """Take up what was under way; `absence` is the time in which no agent could have been heard."""
    state.started_at = event.at
    _bring_back(state, event.at)
    for machine in tuple(state.machines.values()):
        if machine.state in _AGEING:
            with state.changing(machine):
                machine.absence += event.absence
                machine.confirmed = False
                machine.due = deadlines.due(state, machine)
    for call in tuple(state.open_calls.values()):
        _resume_call(state, call, event.at)
    for runner in tuple(state.runners.values()):
        if runner.state is RunnerState.WITHDRAWING:
            with state.changing(runner):
                known = runner.github_id is not None
                runner.state = RunnerState.MINTED if known else RunnerState.NAMED
    for account in {runner.demand.account for runner in state.runners.values()}:
        level = state.catalogue.registration.refilled(0.0, event.absence)
        state.mint_levels[account] = (level, event.at)
    for provider in {call.provider for call in state.calls.values()}:
        if (rate := state.catalogue.launch_rates.get(provider)) is not None:
            gained = rate.refilled(LaunchTokens(0.0, 0.0), event.absence)
            state.launch_levels[provider] = (gained, event.at)


def _bring_back(state: LedgerState, at: Instant) -> None:
    """The host's clock was set back while nobody ran: nothing has happened after the start."""
    latest = at - BEFORE_THE_START
    kept: tuple[Record, ...] = (
        *state.machines.values(),
        *state.runners.values(),
        *state.calls.values(),
        *state.jobs.values(),
    )
    for record in kept:
        for name in HAPPENED[type(record)]:
            moment = getattr(record, name)
            if moment is not None and moment > at:
                with state.changing(record):
                    setattr(record, name, latest)


def _resume_call(state: LedgerState, call: Call, at: Instant) -> None:
    if call.state is CallState.RECORDED:
        calls.on_call_withdrawn(state, CallWithdrawn(at, call.id, "not sent before a restart"))
    elif call.state is CallState.SENT:
        calls.on_call_unknown(state, CallOutcomeUnknown(at, call.id, "we were restarted"))
