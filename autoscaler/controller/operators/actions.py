"""Carries out operators' requests: terminate a machine, adopt an installation.

Before a machine is released, the controller asks GitHub which runners are at work. The planner then
terminates the released machine.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.github import GitHubError
from autoscaler.controller.ports.github_lists import GitHubLists
from autoscaler.controller.ports.operator_requests import OperatorRequestRefusedError, RefusalKind
from autoscaler.controller.reporting.log_fields import machine_fields
from autoscaler.ledger.machines.operator_requests import (
    evidence_of_life,
    refusal_of_adoption,
    unverified,
)
from autoscaler.model.events import InstallationAdopted, MachineReleasedByOperator
from autoscaler.model.identifiers import (
    InstallationId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
)
from autoscaler.model.machines.machine import (
    RELEASED_STATES,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.machines.unverified import UnverifiedMachine
from autoscaler.model.operators import OperatorName

_log = structlog.get_logger(__name__)


class OperatorActions:
    """The requests of an operator about a machine or an installation. `by` is who sends it, for the history."""

    def __init__(
        self,
        journal: Journal,
        lists: GitHubLists,
        providers: Collection[ProviderName],
        accept_id: Callable[[InstallationId], None] = lambda _: None,
    ) -> None:
        """`accept_id` is called with an adopted ID before the adoption is durable: it accepts the ID's tags."""
        self._journal = journal
        self._lists = lists
        self._providers = providers
        self._accept_id = accept_id

    def unverified(self) -> Sequence[UnverifiedMachine]:
        """Return the unverified machines, and the machines that do not terminate."""
        return unverified(self._journal.ledger.state)

    def providers_not_listed(self) -> Sequence[ProviderName]:
        """Return the providers whose machines were not listed completely since the start."""
        return sorted(set(self._providers) - self._journal.ledger.state.machines_listed_at.keys())

    async def terminate(self, machine: str, *, by: OperatorName, force: bool = False) -> MachineId:
        """Release a machine for termination. `machine` is its ID or the provider's.

        With `force`, also if it may be running a job. Durable on return. Raises: OperatorRequestRefusedError,
        StoreError.
        """
        found = self._existing_machine(machine)
        if not force:
            at_work = await self._at_work() if found.is_unverified else []
            found = self._existing_machine(machine)  # its state may have changed meanwhile
            life = self._sign_of_work(found, at_work)
            if life is not None:
                _refuse(
                    RefusalKind.CONTRADICTED,
                    f"machine {found.id} may be running a job: {life}. Wait until the job is over, or "
                    "check the machine itself and repeat the command with --force",
                )
        now = self._journal.now
        await self._journal.record(MachineReleasedByOperator(now, found.id, by, force))
        _log.warning("machine_terminated_by_operator", **machine_fields(found), by=by, forced=force)
        return found.id

    async def adopt(self, old_id: str, *, by: OperatorName, force: bool = False) -> InstallationId:
        """Take over the id and the machines of an installation whose store is lost.

        With `force`, also if this store has machines of its own. Durable on return.
        Raises: OperatorRequestRefusedError, StoreError.
        """
        old = InstallationId(old_id)
        refusal = refusal_of_adoption(self._journal.ledger.state, old, force=force)
        if refusal is not None:
            _refuse(RefusalKind.CONTRADICTED, refusal)
        # No await between the check and the change: no launch request may be recorded in between.
        self._accept_id(old)
        self._journal.note(InstallationAdopted(self._journal.now, old, by))
        self._journal.changed.set()
        await self._journal.commit()
        _log.warning("installation_adopted", installation=old, by=by)
        return old

    async def _at_work(self) -> list[RunnerName]:
        """Return the names of all runners that GitHub shows as busy or online, of any installation."""
        found: list[RunnerName] = []
        for scope in self._journal.ledger.state.catalogue.scopes:
            try:
                listed = await self._lists.runners(scope.key)
            except GitHubError as error:
                _refuse(
                    RefusalKind.UNREACHABLE,
                    f"GitHub's runners could not be listed: {error}. Try again, or check the "
                    "machine itself and repeat the command with --force",
                )
            found += [one.name for one in listed.items if one.busy or one.online]
        return found

    def _sign_of_work(self, machine: Machine, at_work: Collection[RunnerName]) -> str | None:
        """Return why a machine may be running a job, or None."""
        state = self._journal.ledger.state
        if machine.is_unverified:
            return evidence_of_life(state, machine, at_work, self._journal.now)
        if machine.state is MachineState.EXITED:
            return None
        runner = state.runner_of(machine)
        if machine.state is MachineState.ASSIGNED or machine.work.may_run_job:
            job = (
                f"job {runner.job}"
                if runner is not None and runner.job is not None
                else "no job yet"
            )
            return f"its runner {machine.work.runner} has {job}"
        if machine.is_unassigned and not state.evidence.proves_unused(machine):
            return "its agent has sent no request since the controller started"
        return None

    def _existing_machine(self, machine: str) -> Machine:
        state = self._journal.ledger.state
        known = state.by_provider_id.get(ProviderMachineId(machine), MachineId(machine))
        found = state.machines.get(known)
        if found is None:
            others = {one.provider_id for one in self.unverified() if one.machine is None}
            if machine in others:
                _refuse(
                    RefusalKind.CONTRADICTED,
                    f"{machine} belongs to another installation: see autoscaler unverified",
                )
            _refuse(RefusalKind.UNKNOWN, f"no machine {machine} is known: see autoscaler machines")
        if found.state is MachineState.TERMINATED:
            what = f"machine {found.id} is terminated already"
            _refuse(RefusalKind.CONTRADICTED, f"{what}: see autoscaler history {found.id}")
        if found.does_not_terminate:
            _refuse(
                RefusalKind.CONTRADICTED,
                f"machine {found.id} is terminating, but {found.provider} does not terminate it: "
                f"{found.provider_words}. Terminate it at {found.provider}",
            )
        if found.termination.reason is TerminationReason.OPERATOR:
            _refuse(RefusalKind.CONTRADICTED, f"machine {found.id} is being terminated already")
        if found.state not in RELEASED_STATES or not found.occupies:
            _refuse(RefusalKind.CONTRADICTED, f"machine {found.id} is {found.state}")
        return found


def _refuse(kind: RefusalKind, reason: str) -> NoReturn:
    raise OperatorRequestRefusedError(kind, reason)
