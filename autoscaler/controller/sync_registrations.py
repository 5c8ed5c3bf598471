"""Which registrations at GitHub have lost their machine, and may be removed.

Only names of this installation, by its id or a former one of its own, only once two lists a minute
apart agree, and never one that may be at work: GitHub must show it offline and not busy in both, and
its machine must be provably gone. It never deletes anything itself.
"""

from collections.abc import Sequence

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.ledger.state import LedgerState
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.machines import MachineState
from autoscaler.model.runners import machine_in_name

CONFIRMED_AFTER: Seconds = 60.0


class Registrations:
    """Remembers since when each registration of one scope seems to have lost its machine."""

    def __init__(self) -> None:
        self._since: dict[int, Instant] = {}

    @property
    def suspects(self) -> bool:
        """Whether the next list is awaited sooner than usual."""
        return bool(self._since)

    def listed(
        self, runners: Sequence[RegisteredRunner], state: LedgerState, began_at: Instant
    ) -> list[RegisteredRunner]:
        """Take a complete list in, begun at that moment; what is to be removed now."""
        # A restored store knows less than there is: a machine that it cannot tell may be anyone's.
        unverified = any(one.unverified and one.occupies for one in state.machines.values())
        lost = {
            runner.github_id: runner
            for runner in runners
            if has_lost_its_machine(runner, state, unverified)
        }
        self._since = {number: self._since.get(number, began_at) for number in lost}
        confirmed = [
            runner
            for number, runner in lost.items()
            if began_at - self._since[number] >= CONFIRMED_AFTER
            and _swept_since(state, self._since[number])
        ]
        for runner in confirmed:
            del self._since[runner.github_id]  # whatever comes of it, it takes two lists again
        return confirmed


def has_lost_its_machine(runner: RegisteredRunner, state: LedgerState, unverified: bool) -> bool:
    """Whether a registration is one of ours, does nothing, and has no machine any more.

    `unverified`: a machine that nobody can tell may be that of a registration without one.
    """
    if runner.online or runner.busy:
        return False
    machine_id = machine_in_name(state.catalogue, runner.name)
    if machine_id is None:
        return False
    machine = state.machines.get(machine_id)
    if machine is None or (machine.state is MachineState.FAILED and machine.provider_id is None):
        # Nobody knows it, or its slot was written off: a backup may be older than its registration.
        return not unverified
    return machine.state is MachineState.TERMINATED


def _swept_since(state: LedgerState, moment: Instant) -> bool:
    """Whether every provider has been listed completely since then."""
    providers = {
        option.provider for sku in state.catalogue.skus.values() for option in sku.launch_options
    }
    return all(state.machines_listed_at.get(provider, 0.0) > moment for provider in providers)
