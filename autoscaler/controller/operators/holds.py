"""Carries out operators' requests to pause, drain, quarantine, resume and retry."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import NoReturn

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.operator_requests import (
    HoldOutcome,
    OperatorRequestRefusedError,
    RefusalKind,
)
from autoscaler.ledger.failures.retries import holds_to_end
from autoscaler.model.events import HeldByOperator, ResumedByOperator, RetriedByOperator
from autoscaler.model.identifiers import MachineId, ProviderMachineId, ProviderName
from autoscaler.model.machines.machine import KEPT_IN_QUARANTINE, Machine, MachineState
from autoscaler.model.operators import (
    ALL,
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    OperatorName,
    TargetKind,
    held,
    hold_key,
    machine_target,
)
from autoscaler.model.wording import counted
from autoscaler.views.hold_outcomes import after_hold, after_resume

_log = structlog.get_logger(__name__)

_MOST_REASONS = 5
_GROUPS = frozenset({TargetKind.FLEET, TargetKind.SKU, TargetKind.PROVIDER})
_ALLOWED = {
    HoldKind.PAUSED: _GROUPS,
    HoldKind.DRAINED: frozenset({TargetKind.SKU, TargetKind.PROVIDER, TargetKind.MACHINE}),
    HoldKind.QUARANTINED: frozenset({TargetKind.MACHINE}),
}
_NOUNS = {TargetKind.SKU: "SKU", TargetKind.PROVIDER: "provider", TargetKind.MACHINE: "machine"}


class OperatorHoldActions:
    """The requests of an operator about what the fleet uses. `by` is who sends it.

    `target` is `all`, the name of a SKU or a provider, or a machine's ID or its ID at its provider; with
    `sku/`, `provider/` or `machine/` before it where a name has several meanings. A repeated request changes
    nothing. Durable on return. Every request raises OperatorRequestRefusedError and StoreError.
    """

    def __init__(self, journal: Journal, providers: Collection[ProviderName]) -> None:
        self._journal = journal
        self._providers = providers

    async def pause(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Launch no machine of a SKU, at a provider or in the whole fleet."""
        return await self._hold(HoldKind.PAUSED, target, by)

    async def drain(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Give a machine, or those of a SKU or a provider, no further job, and terminate them without one.

        Machines of a drained SKU or provider are not replaced: the drain pauses it, too.
        """
        return await self._hold(HoldKind.DRAINED, target, by)

    async def quarantine(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Keep a machine without a job for inspection, for its SKU's `lifetime` at most."""
        return await self._hold(HoldKind.QUARANTINED, target, by)

    async def resume(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """End what `pause`, `drain` and `quarantine` began for this target."""
        found = self._resolve(target, frozenset(TargetKind))
        holds = self._journal.ledger.state.operator_holds
        rows = [row.reason for _, one, row in held(holds) if one == found]
        if not rows:
            done = f"{found} is not paused, drained or quarantined"
            return HoldOutcome(str(found), done, "nothing has changed")
        await self._journal.record(ResumedByOperator(self._journal.now, found, by))
        _log.warning("resumed_by_operator", target=str(found), by=by)
        done = f"{found} was {' and '.join(rows)}, until now"
        return HoldOutcome(str(found), done, after_resume(self._journal.fleet(), found))

    async def retry(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """End the holds of failures for a SKU, a provider or the fleet, and close its circuit breakers."""
        found, now = self._resolve(target, _GROUPS), self._journal.now
        rows = holds_to_end(self._journal.ledger.state, found, now)
        await self._journal.record(RetriedByOperator(now, found, by))
        _log.warning("retried_by_operator", target=str(found), by=by, holds=len(rows))
        done = f"nothing of {found} was on hold after a failure"
        if rows:
            reasons = "; ".join(dict.fromkeys(row.reason for row in rows[:_MOST_REASONS]))
            done = f"{counted(len(rows), 'hold')} of {found} ended: {reasons}"
        return HoldOutcome(str(found), done, after_resume(self._journal.fleet(), found))

    async def _hold(self, kind: HoldKind, target: str, by: OperatorName) -> HoldOutcome:
        found = self._resolve(target, _ALLOWED[kind])
        if found.kind is TargetKind.MACHINE:
            self._refuse_if_too_late(
                kind, self._journal.ledger.state.machines[MachineId(found.name)]
            )
        holds, key = self._journal.ledger.state.operator_holds, hold_key(kind, found)
        already = key in holds
        if not already:
            await self._journal.record(HeldByOperator(self._journal.now, kind, found, by))
            _log.warning("held_by_operator", kind=kind.value, target=str(found), by=by)
        row = self._journal.ledger.state.cooldowns[key]
        done = f"{found} is {'already ' if already else ''}{row.reason}"
        following = after_hold(self._journal.fleet(), kind, found, row.until)
        return HoldOutcome(str(found), done, following)

    def _refuse_if_too_late(self, kind: HoldKind, machine: Machine) -> None:
        if machine.state is MachineState.TERMINATING or not machine.occupies:
            _refuse(RefusalKind.CONTRADICTED, f"machine {machine.id} is {machine.state} already")
        if kind is HoldKind.QUARANTINED and machine.state not in KEPT_IN_QUARANTINE:
            why = "it is not launched yet"
            if machine.state is not MachineState.REQUESTED:
                why = (
                    "it has a runner, and powers itself off after the job; inspect it while the job "
                    "runs, or quarantine another machine before it has a runner"
                )
            _refuse(RefusalKind.CONTRADICTED, f"machine {machine.id} cannot be quarantined: {why}")

    def _resolve(self, text: str, allowed: Collection[TargetKind]) -> HoldTarget:
        """Return the target of this name. Raises OperatorRequestRefusedError."""
        found = [one for one in self._named(text) if one.kind in allowed]
        if len(found) > 1:
            names = " or ".join(map(str, found))
            _refuse(RefusalKind.CONTRADICTED, f"{text} has several meanings: write {names}")
        if not found:
            nouns = " or ".join(noun for kind, noun in _NOUNS.items() if kind in allowed)
            if text == ALL:
                whole = "autoscaler pause all stops launches of the whole fleet"
                _refuse(
                    RefusalKind.CONTRADICTED, f"all is not allowed here: name a {nouns}; {whole}"
                )
            where = (
                self._meant(text, allowed) or "fleet.yaml and autoscaler machines have the names"
            )
            if text in self._zones():
                where = (
                    "it is a zone; to launch nothing there, remove its subnet from fleet.yaml and run "
                    "autoscaler reload, then drain the machines that autoscaler machines shows there"
                )
            _refuse(RefusalKind.UNKNOWN, f"no {nouns} is called {text}: {where}")
        return found[0]

    def _meant(self, text: str, allowed: Collection[TargetKind]) -> str:
        """Return the question for the SKU or provider with nearly this name, or an empty text."""
        catalogue = self._journal.ledger.state.catalogue
        names = {
            TargetKind.SKU: tuple(catalogue.skus),
            TargetKind.PROVIDER: tuple(
                option.provider for sku in catalogue.skus.values() for option in sku.launch_options
            ),
        }
        known = [name for kind in allowed for name in names.get(kind, ())]
        found = get_close_matches(text, known, n=1)
        return f"did you mean {found[0]}?" if found else ""

    def _zones(self) -> set[str]:
        """Return the zones in which machines may be launched."""
        skus = self._journal.ledger.state.catalogue.skus.values()
        options = [option for sku in skus for option in sku.launch_options]
        return {offering.zone for option in options for offering in option.offerings}

    def _named(self, text: str) -> Iterator[HoldTarget]:
        state = self._journal.ledger.state
        if text == ALL:
            yield WHOLE_FLEET
            return
        kind, slash, name = text.partition("/")
        prefixed = bool(slash) and kind in set(TargetKind)
        wanted, name = (TargetKind(kind), name) if prefixed else (None, text)
        skus: set[str] = set(state.catalogue.skus)
        providers: set[str] = set(self._providers)
        for _, target, _ in held(state.operator_holds):  # what is held may be gone from fleet.yaml
            skus |= {target.name} if target.kind is TargetKind.SKU else set()
            providers |= {target.name} if target.kind is TargetKind.PROVIDER else set()
        if wanted in (None, TargetKind.SKU) and name in skus:
            yield HoldTarget(TargetKind.SKU, name)
        if wanted in (None, TargetKind.PROVIDER) and name in providers:
            yield HoldTarget(TargetKind.PROVIDER, name)
        known = state.by_provider_id.get(ProviderMachineId(name), MachineId(name))
        if wanted in (None, TargetKind.MACHINE) and known in state.machines:
            yield machine_target(known)


def _refuse(kind: RefusalKind, reason: str) -> NoReturn:
    raise OperatorRequestRefusedError(kind, reason)
