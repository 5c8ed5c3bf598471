"""Asks why machines did not come up: the end of their console's output goes into their history.

A machine is asked about once, when it is ended for a deadline or went down by itself before it
ready for a reason that has no class of its own. Nothing waits for the answer, and one that can
not be had is said to be so. It never decides what becomes of a machine.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.poller import PeriodicTask
from autoscaler.controller.ports.provider import (
    MOST_CONSOLE,
    OutcomeUnknownError,
    Provider,
    ProviderError,
)
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import ConsoleRead
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import MachineId, ProviderMachineId, ProviderName, Seconds
from autoscaler.model.machines import Machine, MachineState, TerminationReason

SHOWN = 2000
"""Characters of the output that are kept, the last ones."""

PATIENCE: Seconds = 10.0
"""For one answer (real seconds), the wait for a turn among EC2's calls included."""

MOST_WAITING = 50
"""Machines of one provider that wait to be asked about: of a bad image's thousand, some will do."""

HIDDEN = "[hidden]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_CREDENTIALS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    # A JIT configuration, a token, a key, or a line of one: words are shorter, and so are UUIDs.
    r"|[A-Za-z0-9+/_\-]{40,}={0,2}",
    re.ASCII | re.DOTALL,
)
_HARMLESS = re.compile(r"/[a-z0-9/_\-]*|[+/_\-]*", re.ASCII)
"""A path (random text has capitals), or a line that is drawn."""

_log = structlog.get_logger(__name__)


class Consoles:
    """One endless task for each provider, so that one that hangs stalls no other."""

    def __init__(self, journal: Journal, providers: Mapping[ProviderName, Provider]) -> None:
        self._journal = journal
        self._providers = providers
        self._waiting: dict[ProviderName, asyncio.Queue[MachineId]] = {
            name: asyncio.Queue(MOST_WAITING) for name in providers
        }
        journal.on_history(self._hear)

    @property
    def tasks(self) -> list[PeriodicTask]:
        """One for each provider, to be looked after by the reconciler."""
        return [partial(self._attend, name) for name in self._waiting]

    async def _attend(self, name: ProviderName) -> None:
        while True:
            await self.ask(await self._waiting[name].get())

    async def ask(self, machine_id: MachineId) -> None:
        """Have what a machine's console shows in its history. Raises StoreError."""
        machine = self._journal.ledger.state.machines.get(machine_id)
        if machine is None or machine.provider_id is None:
            return
        shown = await self._shown(self._providers[machine.provider], machine.provider_id)
        _log.warning(
            "machine_did_not_come_up",
            machine=machine.id,
            sku=machine.sku,
            provider=machine.provider,
            provider_id=machine.provider_id,
            reason=machine.reason,
            shown=shown,
        )
        await self._journal.record(ConsoleRead(self._journal.now, machine_id, shown))

    async def _shown(self, provider: Provider, machine: ProviderMachineId) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                written = await provider.console(machine)
        except TimeoutError:
            return f"its console was not shown within {PATIENCE:g} s"
        except (ProviderError, OutcomeUnknownError) as error:
            return readable(f"its console could not be read: {error}")
        return readable(written) or "its console shows nothing"

    def _hear(self, rows: Sequence[HistoryRow]) -> None:
        for row in rows:
            if row.kind != "machine" or row.event not in (
                MachineState.TERMINATING,
                MachineState.FAILED,
            ):
                continue
            machine = self._journal.ledger.state.machines.get(MachineId(row.record))
            if machine is None or not _is_unexplained(machine, row.event):
                continue
            waiting = self._waiting.get(machine.provider)
            if waiting is not None and not waiting.full():
                waiting.put_nowait(machine.id)


def readable(written: str) -> str:
    """The end of what a machine wrote: printable, and without what looks like a credential."""
    if len(written) >= MOST_CONSOLE:
        # Its first line may be the rest of one that was a credential.
        written = written[-MOST_CONSOLE:].partition("\n")[2]
    text = _ESCAPES.sub("", written)
    text = "".join(one for one in text if one == "\n" or one.isprintable())
    text = _CREDENTIALS.sub(_hidden, text)
    return text.strip()[-SHOWN:]


def _hidden(found: re.Match[str]) -> str:
    return found[0] if _HARMLESS.fullmatch(found[0]) else HIDDEN


def _is_unexplained(machine: Machine, event: str) -> bool:
    """Whether its console may say more than is known: a gate and a reason's class say it themselves."""
    if machine.provider_id is None:
        return False
    if event == MachineState.TERMINATING:
        return machine.reason_code is TerminationReason.DEADLINE
    return machine.failure is FailureClass.UNKNOWN and machine.ready_at is None
