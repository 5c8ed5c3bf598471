"""Terminates machines, in batches of one request for each provider."""

from collections.abc import Iterable, Mapping

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.machines.console import ConsoleReader
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.reporting.log_fields import machine_fields
from autoscaler.model.events import TerminationAnswered
from autoscaler.model.identifiers import MachineId, ProviderName, Seconds

_log = structlog.get_logger(__name__)

GATHER_FOR: Seconds = 0.1
MOST_AT_ONCE = 500
"""Karpenter batches TerminateInstances by 500, too."""


class Terminator:
    """Terminates machines and records each refusal. The planner requests a refused termination again."""

    def __init__(
        self,
        journal: Journal,
        providers: Mapping[ProviderName, Provider],
        console_reader: ConsoleReader,
        pacing: Clock,
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._console_reader = console_reader
        self._pacing = pacing
        self._gathered: dict[ProviderName, list[MachineId]] = {}

    async def terminate(self, machine: MachineId) -> None:
        """Terminate a machine, in one batch with others that are requested within `GATHER_FOR`.

        First waits for the machine's console output, if it is being read (see `ConsoleReader.wait_for`).
        """
        provider = self._journal.ledger.state.machines[machine].provider
        if provider not in self._providers:
            error = f"provider {provider} is no longer configured"
            await self._journal.record(TerminationAnswered(self._journal.now, machine, error))
            self._report([machine])
            return
        await self._console_reader.wait_for(machine)
        gathered = self._gathered.setdefault(provider, [])
        gathered.append(machine)
        if len(gathered) == 1:
            await self._pacing.sleep(GATHER_FOR)
            machines = self._gathered.pop(provider)
            for start in range(0, len(machines), MOST_AT_ONCE):
                await self._send(provider, machines[start : start + MOST_AT_ONCE])

    async def _send(self, provider: ProviderName, machines: list[MachineId]) -> None:
        known = self._journal.ledger.state.machines
        ids = {
            known[machine].placement.provider_id: machine
            for machine in machines
            if machine in known
        }
        asked = [provider_id for provider_id in ids if provider_id is not None]
        try:
            refused = await self._providers[provider].terminate(asked)
        except (ProviderError, OutcomeUnknownError) as error:
            refused = dict.fromkeys(asked, str(error))
        now = self._journal.now
        await self._journal.record(
            *(
                TerminationAnswered(now, ids[provider_id], refused.get(provider_id, ""))
                for provider_id in asked
            )
        )
        self._report(ids[provider_id] for provider_id in asked)

    def _report(self, machines: Iterable[MachineId]) -> None:
        """Log the machines that still exist after repeated termination requests."""
        known = self._journal.ledger.state.machines
        for machine in machines:
            record = known.get(machine)
            if record is not None and record.does_not_terminate:
                _log.warning(
                    "machine_not_terminated",
                    **machine_fields(record),
                    attempts=record.termination.attempts,
                    provider_says=record.provider_words,
                )
