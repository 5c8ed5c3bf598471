"""Applies events of registrations: from the assignment to the end of the registration."""

from autoscaler.ledger.failures.cooldowns import note_job_given
from autoscaler.ledger.failures.failure_counts import count_failure, end_hold
from autoscaler.ledger.job_holds import left_idle
from autoscaler.ledger.machines.states import move, see
from autoscaler.ledger.machines.unverified import has_configuration
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import may_become
from autoscaler.model.cooldowns import registration_key
from autoscaler.model.events import (
    ConfigurationSent,
    RunnerClosed,
    RunnerDeregistered,
    RunnerDeregistrationRequested,
    RunnerListening,
    RunnerNamed,
    RunnerRegistered,
    RunnerRegistrationFailed,
)
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.runners import (
    PASSED_OVER_AFTER,
    Runner,
    RunnerState,
)
from autoscaler.model.machines.machine import MachineState


def on_runner_named(state: LedgerState, event: RunnerNamed) -> None:
    """Assign the machine, and use one registration of the account's budget."""
    machine = state.machines[event.machine]
    runner = Runner(event.name, event.machine, event.demand, RunnerState.NAMED, event.at, event.at)
    state.add(runner)
    if machine.state is not MachineState.ASSIGNED:
        move(state, machine, MachineState.ASSIGNED, event.at)
    with state.changing(machine):
        machine.work.runner = event.name
        machine.work.tries += 1
        machine.progress.assigned_at = machine.progress.assigned_at or event.at
    account = event.demand.account
    left = registration_level(state, account, event.at) - 1.0
    state.registration_levels[account] = (left, event.at)
    state.note(runner, event.at, "named", f"for {' '.join(event.demand.runner_labels)}")


def on_runner_registered(state: LedgerState, event: RunnerRegistered) -> None:
    """Store GitHub's ID of the registration."""
    runner = state.runners.get(event.name)
    if runner is None:
        return
    with state.changing(runner):
        runner.github_id = event.github_id
    end_hold(state, registration_key(runner.demand.scope), event.at)
    _advance(state, runner, RunnerState.REGISTERED, event.at, f"id {event.github_id}")


def on_runner_registration_failed(state: LedgerState, event: RunnerRegistrationFailed) -> None:
    """Make the machine ready again, and put registrations in this scope on hold."""
    runner = state.runners.get(event.name)
    if runner is None:
        return
    reason = f"{event.failure}: {event.message}"
    key = registration_key(runner.demand.scope)
    count_failure(
        state,
        key,
        event.failure,
        event.at,
        reason,
        event.retry_at - event.at,
        error=event.limit or "",
    )
    _close_and_free_machine(state, runner, event.at, reason)


def on_configuration_sent(state: LedgerState, event: ConfigurationSent) -> None:
    """Mark the configuration as sent: from now on the machine may run a job."""
    runner = state.runners.get(event.name)
    if runner is None:
        return
    with state.changing(runner):
        runner.configuration_sent_at = event.at
        # If the runner stays silent, it stops counting as supply then.
        runner.retry_at = event.at + PASSED_OVER_AFTER
    machine = state.machines[runner.machine]
    with state.changing(machine):
        machine.work.may_run_job = True
    state.note(runner, event.at, "configuration_sent")


def on_runner_listening(state: LedgerState, event: RunnerListening) -> None:
    """Mark the runner as listening: it is idle until GitHub names it for a job."""
    runner = state.runners.get(event.name)
    if runner is None:
        return
    with state.changing(runner):
        runner.listening_at = runner.listening_at or event.at
        runner.retry_at = event.at + PASSED_OVER_AFTER
    _advance(state, runner, RunnerState.LISTENING, event.at)
    see(state, state.machines[runner.machine], event.at)


def on_deregistration_requested(state: LedgerState, event: RunnerDeregistrationRequested) -> None:
    """Mark the registration as deregistering: it is no supply any more."""
    runner = state.runners.get(event.name)
    if runner is not None:
        _advance(state, runner, RunnerState.DEREGISTERING, event.at, event.reason)


def on_runner_deregistered(state: LedgerState, event: RunnerDeregistered) -> None:
    """Make the machine ready again: its registration was deleted before it got it."""
    runner = state.runners.get(event.name)
    if runner is not None:
        _close_and_free_machine(state, runner, event.at, event.reason)


def on_runner_closed(state: LedgerState, event: RunnerClosed) -> None:
    """End the registration. Other events change its machine."""
    runner = state.runners.get(event.name)
    if runner is None:
        return
    machine = state.machines.get(runner.machine)
    if machine is not None and machine.work.runner == runner.name:
        left_idle(state, machine, event.at)
    close_runner(state, runner, event.at, event.reason)
    if runner.configuration_sent_at is None and runner.state is RunnerState.DONE:
        has_configuration(state, runner.name, event.at)  # GitHub refused to delete it as busy


def bind_job(state: LedgerState, runner: Runner, job: JobId, at: Instant) -> None:
    """Bind a job to the runner that GitHub named for it."""
    if (machine := state.machines.get(runner.machine)) is not None:
        note_job_given(state, machine, at)
    with state.changing(runner):
        runner.job = job
        runner.passed_over = False
    _advance(state, runner, RunnerState.BUSY, at, f"job {job}")


def close_runner(state: LedgerState, runner: Runner, at: Instant, reason: str) -> None:
    """End a registration."""
    _advance(state, runner, RunnerState.DONE, at, reason)


def registration_level(state: LedgerState, account: str, at: Instant) -> float:
    """Return how many runners an account may register now (a token bucket)."""
    rate = state.catalogue.registration
    level, since = state.registration_levels.get(account, (float(rate.burst), at))
    return rate.refilled(level, at - since)


def _close_and_free_machine(state: LedgerState, runner: Runner, at: Instant, reason: str) -> None:
    close_runner(state, runner, at, reason)
    machine = state.machines.get(runner.machine)
    if machine is None or machine.work.runner != runner.name:
        return
    if machine.state is MachineState.ASSIGNED and not machine.work.may_run_job:
        move(state, machine, MachineState.READY, at, reason)
        with state.changing(machine):
            machine.work.runner = machine.progress.assigned_at = None


def _advance(
    state: LedgerState, runner: Runner, to: RunnerState, at: Instant, detail: str = ""
) -> None:
    """Change a registration's state, unless the fact came too late for that."""
    if not may_become(runner, to):
        return
    with state.changing(runner):
        state.enter(runner, to)
        runner.since = at
        if detail and to in (RunnerState.DONE, RunnerState.DEREGISTERING):
            runner.reason = detail[:500]
    state.note(runner, at, to, detail)
