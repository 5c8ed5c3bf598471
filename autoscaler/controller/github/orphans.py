"""Finds registrations at GitHub that have no machine any more, so that they can be deleted.

A registration must have a name of this installation (or a former id of it). Two lists at least a minute
apart must show it offline and not busy. Its machine must be provably terminated, or lost for `LOST_FOR`.
"""

from collections.abc import Sequence

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.runners import machine_in_name
from autoscaler.model.machines.machine import MachineState

CONFIRMED_AFTER: Seconds = 60.0
LOST_FOR: Seconds = 300.0
"""How long a machine must be lost. If only the provider's lists lack it, its runner has connected by then. A
runner that connects later cannot, and its machine powers off; it has no job, because GitHub shows it idle."""


class Registrations:
    """Remembers since when each registration of one scope has had no machine."""

    def __init__(self) -> None:
        self._since: dict[int, Instant] = {}

    @property
    def suspects(self) -> bool:
        """True if a registration has no machine and waits for a second list."""
        return bool(self._since)

    def listed(
        self, runners: Sequence[RegisteredRunner], state: LedgerState, began_at: Instant
    ) -> list[RegisteredRunner]:
        """Evaluate a complete list that began at `began_at`. Return the registrations to delete now."""
        # After a restore, an unverified machine may belong to any registration without a record.
        unverified = state.unverified_existing > 0
        lost = {
            runner.github_id: runner
            for runner in runners
            if has_lost_its_machine(runner, state, unverified, began_at)
        }
        self._since = {number: self._since.get(number, began_at) for number in lost}
        confirmed = [
            runner
            for number, runner in lost.items()
            if began_at - self._since[number] >= CONFIRMED_AFTER
            and _listed_since(state, self._since[number])
        ]
        for runner in confirmed:
            del self._since[runner.github_id]  # another attempt needs two lists again
        return confirmed


def has_lost_its_machine(
    runner: RegisteredRunner, state: LedgerState, unverified: bool, now: Instant
) -> bool:
    """Return True if a registration is of this installation, is idle, and has no machine any more.

    `unverified`: there are unverified machines, which may belong to a registration without a record.
    """
    if runner.online or runner.busy:
        return False
    machine_id = machine_in_name(state.catalogue, runner.name)
    if machine_id is None:
        return False
    machine = state.machines.get(machine_id)
    if machine is None or (
        machine.state is MachineState.FAILED and machine.placement.provider_id is None
    ):
        # Unknown machine, or its slot was given up: the store may be older than the registration.
        return not unverified
    lost = machine.state is MachineState.LOST and now - machine.since >= LOST_FOR
    return lost or machine.state is MachineState.TERMINATED


def _listed_since(state: LedgerState, moment: Instant) -> bool:
    """Return True if every provider has been listed completely since then."""
    providers = {
        option.provider for sku in state.catalogue.skus.values() for option in sku.launch_options
    }
    return all(state.machines_listed_at.get(provider, 0.0) > moment for provider in providers)
