"""Reads the console output of machines that did not become ready, and records its end in their history.

The output of a machine is read once: when the machine is terminated for a missed deadline, when it stopped by
itself before it was ready, for an unknown reason, or when a container of a pod does not start. If the output
cannot be read, the history says so. Nothing waits for the output.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.log_fields import machine_fields
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
"""Number of the output's last characters that are kept."""

PATIENCE: Seconds = 10.0
"""Timeout of one read (real seconds), including the wait for EC2's rate limit."""

MOST_WAITING = 50
"""Maximum number of a provider's machines waiting for a read. A bad image may cause thousands."""

HIDDEN = "[hidden]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_CREDENTIALS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    # A JIT configuration, a token, a key, or a line of one. Words and UUIDs are shorter.
    r"|[A-Za-z0-9+/_\-]{40,}={0,2}",
    re.ASCII | re.DOTALL,
)
_HARMLESS = re.compile(r"/[a-z0-9/_\-]*|[+/_\-]*", re.ASCII)
"""A path (random text has capital letters), or a drawn line."""

_log = structlog.get_logger(__name__)


class ConsoleReader:
    """Reads consoles in one task for each provider, so that a slow provider does not delay the others."""

    def __init__(self, journal: Journal, providers: Mapping[ProviderName, Provider]) -> None:
        self._journal = journal
        self._providers = providers
        self._waiting: dict[ProviderName, asyncio.Queue[MachineId]] = {
            name: asyncio.Queue(MOST_WAITING) for name in providers
        }
        journal.on_history(self._on_history)

    @property
    def tasks(self) -> list[PeriodicTask]:
        """One endless task for each provider."""
        return [partial(self._read_repeatedly, name) for name in self._waiting]

    async def _read_repeatedly(self, name: ProviderName) -> None:
        while True:
            await self.ask(await self._waiting[name].get())

    async def ask(self, machine_id: MachineId) -> None:
        """Read a machine's console and record its end in the history. Raises StoreError."""
        machine = self._journal.ledger.state.machines.get(machine_id)
        if machine is None or machine.placement.provider_id is None:
            return
        shown = await self._shown(self._providers[machine.provider], machine.placement.provider_id)
        _log.warning(
            "machine_not_ready",
            **machine_fields(machine),
            code=machine.failure or machine.termination.reason,
            reason=machine.reason,
            shown=shown,
        )
        await self._journal.record(ConsoleRead(self._journal.now, machine_id, shown))

    async def _shown(self, provider: Provider, machine: ProviderMachineId) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                written = await provider.console(machine)
        except TimeoutError:
            return f"the console output could not be read within {PATIENCE:g} s"
        except (ProviderError, OutcomeUnknownError) as error:
            return readable(f"the console output could not be read: {error}")
        return readable(written) or "the console output is empty"

    def _on_history(self, rows: Sequence[HistoryRow]) -> None:
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
    """Return the end of a console output: only printable text, and without possible credentials."""
    if len(written) >= MOST_CONSOLE:
        # The first line is cut off and may be the end of a credential.
        written = written[-MOST_CONSOLE:].partition("\n")[2]
    text = _ESCAPES.sub("", written)
    text = "".join(one for one in text if one == "\n" or one.isprintable())
    text = _CREDENTIALS.sub(_hidden, text)
    return text.strip()[-SHOWN:]


def _hidden(found: re.Match[str]) -> str:
    return found[0] if _HARMLESS.fullmatch(found[0]) else HIDDEN


def _is_unexplained(machine: Machine, event: str) -> bool:
    """Return True if the console may explain the failure. Health checks and known classes explain it.

    A container that ends again and again gives no other reason than its log. A pod without a node has none.
    """
    if machine.placement.provider_id is None:
        return False
    if event == MachineState.TERMINATING:
        return machine.termination.reason is TerminationReason.DEADLINE
    if machine.termination.reason is TerminationReason.CANNOT_START:
        return machine.failure is not FailureClass.CAPACITY
    return machine.failure is FailureClass.UNKNOWN and machine.progress.ready_at is None
