"""Carries out a plan: records each intent as an event, then starts its effect.

No effect starts before its event is durable. New ids are assigned here.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from autoscaler.controller.effects import Effects
from autoscaler.controller.github.registrar import Registrar
from autoscaler.controller.github.single_reads import GitHubReader
from autoscaler.controller.journal import Journal
from autoscaler.controller.machines.launcher import Launcher
from autoscaler.controller.machines.terminator import Terminator
from autoscaler.controller.ports.clock import Ids
from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.runners import Runner, runner_name
from autoscaler.model.plan import (
    Assign,
    CancelLaunchRequest,
    DeregisterRunner,
    Intent,
    Launch,
    MarkUnverified,
    Plan,
    ReadJob,
    ReadRun,
    ReadRunner,
    ResendLaunchRequest,
    Terminate,
)

Effect = Coroutine[Any, Any, None]

LAUNCHED_AT_ONCE = 200
"""Machines whose launch requests are recorded in one step of the event loop, unless one has more."""

RECORDED_AT_ONCE = 50
"""From this number of intents and machines on, the event loop runs other tasks before the commit."""

TERMINATED_AT_ONCE = 100
"""Machines whose terminations are recorded in one step of the event loop."""


class Executor:
    """Carries out one plan at a time. Effects continue in the background."""

    def __init__(
        self,
        journal: Journal,
        ids: Ids,
        effects: Effects,
        launcher: Launcher,
        registrar: Registrar,
        terminator: Terminator,
        github_reader: GitHubReader,
    ) -> None:
        self._journal = journal
        self._ids = ids
        self._effects = effects
        self._launcher = launcher
        self._registrar = registrar
        self._terminator = terminator
        self._github_reader = github_reader

    async def carry_out(self, plan: Plan) -> None:
        """Record every intent, then start its effects. Raises StoreError.

        All intents are one transaction, except launches beyond `LAUNCHED_AT_ONCE` machines: each of
        these has a transaction of its own, until something else changes what the limits count. The
        remaining launches are then planned again. Terminations beyond `TERMINATED_AT_ONCE` are always
        planned again, because a job may start on the machine meanwhile.
        """
        intents = _without_late_terminations(plan.intents)
        if len(intents) < len(plan.intents):
            self._journal.changed.set()
        for piece in _pieces(intents):
            if not await self._carry_out(piece):
                self._journal.changed.set()
                return

    async def _carry_out(self, intents: Sequence[Intent]) -> bool:
        """Record and start some intents. Return False if the counts for limits changed meanwhile."""
        effects = [effect for intent in intents for effect in self._record(intent)]
        counted = self._counted()
        try:
            # Copying and reporting many records takes long, and so does planning and then recording them.
            if not intents or len(intents) + _machines(intents) > RECORDED_AT_ONCE:
                await asyncio.sleep(0)
            await self._journal.commit()
        except BaseException:
            for effect in effects:
                effect.close()
            raise
        for effect in effects:
            self._effects.start(effect)
        return counted == self._counted()

    def _counted(self) -> tuple[object, ...]:
        """Return what limits and quotas count."""
        state = self._journal.ledger.state
        used = state.machines_used, state.dollars_used, +state.used_by_sku, +state.used_by_quota
        return *used, state.quotas, state.catalogue

    def _record(self, intent: Intent) -> tuple[Effect, ...]:
        """Apply one intent as an event. Return the effects to start once the event is durable."""
        now = self._journal.now
        match intent:
            case Launch():
                return (self._launch(intent, now),)
            case ResendLaunchRequest(request):
                self._journal.note(e.LaunchRequestSent(now, request))
                return (self._launcher.send(request),)
            case CancelLaunchRequest() | MarkUnverified():
                self._journal.note(_without_effect(intent, now))
                return ()
            case Assign():
                return (self._assign(intent, now),)
            case DeregisterRunner(runner, reason):
                self._journal.note(e.RunnerDeregistrationRequested(now, runner, reason))
                return (self._registrar.deregister(runner, reason),)
            case Terminate(machine, reason_code, reason):
                unused = self._unused_registration(machine)
                self._journal.note(e.TerminationRequested(now, machine, reason_code, reason))
                self._registrar.wake(machine)
                termination = self._terminator.terminate(machine)
                discard = () if unused is None else (self._registrar.discard(unused),)
                return (*discard, termination)
            case ReadRunner(machine):
                self._journal.note(e.RunnerReadRequested(now, machine))
                return (self._github_reader.read_runner(machine),)
            case ReadJob(job):
                self._journal.note(e.JobReadRequested(now, job))
                return (self._github_reader.read_job(job),)
            case ReadRun(repository, run_id):
                self._journal.note(e.RunReadRequested(now, run_id))
                return (self._github_reader.read_run(repository, run_id),)

    def _unused_registration(self, machine: MachineId) -> Runner | None:
        state = self._journal.ledger.state
        runner = state.runner_of(state.machines[machine])
        unused = runner is not None and runner.configuration_sent_at is None
        return runner if unused else None

    def _launch(self, intent: Launch, now: float) -> Effect:
        request = self._ids.launch_request()
        slots = tuple(self._ids.machine() for _ in range(intent.count))
        self._journal.note(e.LaunchRequestRecorded(now, request, intent, slots, self._ids.token()))
        return self._launcher.launch(request)

    def _assign(self, intent: Assign, now: float) -> Effect:
        state = self._journal.ledger.state
        machine = state.machines[intent.machine]
        name = runner_name(
            state.catalogue.fleet,
            state.catalogue.installations.own,
            machine.id,
            machine.work.tries + 1,
        )
        self._journal.note(e.RunnerNamed(now, name, machine.id, intent.demand))
        return self._registrar.register(name)


def _without_late_terminations(intents: Sequence[Intent]) -> Sequence[Intent]:
    """Return the intents without the terminations beyond `TERMINATED_AT_ONCE`."""
    late = {
        id(one)
        for one in [one for one in intents if isinstance(one, Terminate)][TERMINATED_AT_ONCE:]
    }
    return [one for one in intents if id(one) not in late] if late else intents


def _pieces(intents: Sequence[Intent]) -> list[Sequence[Intent]]:
    """Return the groups of intents to record together: all but the launches beyond `LAUNCHED_AT_ONCE`.

    The first group may be empty.
    """
    first: list[Intent] = []
    later: list[Sequence[Intent]] = []
    machines = 0
    for intent in intents:
        machines += _machines((intent,))
        if isinstance(intent, Launch) and machines > LAUNCHED_AT_ONCE:
            later.append((intent,))
        else:
            first.append(intent)
    return [first, *later] if first or later else []


def _machines(intents: Sequence[Intent]) -> int:
    """Return how many machines some intents launch."""
    return sum(intent.count for intent in intents if isinstance(intent, Launch))


def _without_effect(intent: CancelLaunchRequest | MarkUnverified, now: float) -> e.Event:
    if isinstance(intent, MarkUnverified):
        return e.MachineMarkedUnverified(now, intent.machine)
    return e.LaunchRequestCancelled(now, intent.launch_request, intent.reason)
