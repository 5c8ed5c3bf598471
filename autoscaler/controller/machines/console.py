"""Reads the console output of machines that did not become ready, and records its end in their history.

The output of a machine is read once: when the machine is terminated for a missed deadline, when it stopped by
itself before it was ready, for an unknown reason, or when a container of a pod does not start. If the output
cannot be read, the history says so. A termination waits a few seconds for the output: the log of a pod is lost
with the pod.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import structlog

from autoscaler.controller.effects import Effects
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.provider import (
    MOST_CONSOLE,
    OutcomeUnknownError,
    Provider,
    ProviderError,
)
from autoscaler.controller.reporting.log_fields import machine_fields
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import ConsoleRead
from autoscaler.model.identifiers import MachineId, ProviderMachineId, ProviderName, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason

SHOWN = 2000
"""Number of the output's last characters that are kept."""

PATIENCE: Seconds = 10.0
"""Timeout of one read (real seconds), including the wait for EC2's rate limit."""

BEFORE_TERMINATION: Seconds = 10.0
"""How long a termination waits for the output (real seconds), including the wait for a turn."""

AT_ONCE = 5
"""Reads of a provider at once, so that one console that does not answer does not stop the others."""

MOST_WAITING = 50
"""Maximum number of a provider's machines waiting for a read. A bad image may cause thousands."""

HIDDEN = "[hidden]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_CREDENTIALS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    # A JIT configuration, a token, a key, or a line of one. Words and UUIDs are shorter.
    r"|(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{40,}+={0,2}",
    re.ASCII | re.DOTALL,
)
_HARMLESS = re.compile(r"/[a-z0-9/_\-]*|[+/_\-]*", re.ASCII)
"""A path (random text has capital letters), or a drawn line."""

_log = structlog.get_logger(__name__)


class ConsoleReader:
    """Reads consoles in the background, of each provider apart: a slow one does not delay the others."""

    def __init__(
        self, journal: Journal, providers: Mapping[ProviderName, Provider], effects: Effects
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._effects = effects
        self._reading: dict[MachineId, asyncio.Event] = {}
        self._waiting: Counter[ProviderName] = Counter()
        self._turns = {name: asyncio.Semaphore(AT_ONCE) for name in providers}
        journal.on_history(self._on_history)

    async def wait_for(self, machine: MachineId) -> None:
        """Wait until a machine's console has been read, for `BEFORE_TERMINATION` seconds at most.

        Returns at once if it is not to be read.
        """
        reading = self._reading.get(machine)
        if reading is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEFORE_TERMINATION):
                    await reading.wait()

    async def _read(self, machine: Machine, instance: ProviderMachineId) -> None:
        """Read a machine's console and record its end in the history. Raises StoreError."""
        try:
            async with self._turns[machine.provider]:
                shown = await self._shown(self._providers[machine.provider], instance)
        finally:
            self._waiting[machine.provider] -= 1
            self._reading.pop(machine.id).set()
        _log.warning(
            "machine_not_ready",
            **machine_fields(machine),
            code=machine.failure or machine.termination.reason,
            reason=machine.reason,
            shown=shown,
        )
        await self._journal.record(ConsoleRead(self._journal.now, machine.id, shown))

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
        not_read: Counter[ProviderName] = Counter()
        for machine, instance in self._unexplained(rows):
            if self._waiting[machine.provider] >= MOST_WAITING:
                not_read[machine.provider] += 1
                continue
            self._waiting[machine.provider] += 1
            self._reading[machine.id] = asyncio.Event()
            self._effects.start(self._read(machine, instance))
        for provider, count in not_read.items():
            _log.warning("consoles_not_read", provider=provider, machines=count, limit=MOST_WAITING)

    def _unexplained(
        self, rows: Sequence[HistoryRow]
    ) -> Iterator[tuple[Machine, ProviderMachineId]]:
        """Yield the machines of these rows whose console may explain a failure, and is not being read."""
        for row, machine in self._journal.machines_in(rows):
            if row.event not in (MachineState.TERMINATING, MachineState.FAILED):
                continue
            instance, known = machine.placement.provider_id, machine.provider in self._providers
            if instance is None or not known or machine.id in self._reading:
                continue
            if _is_unexplained(machine, row.event):
                yield machine, instance


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
    if event == MachineState.TERMINATING:
        return machine.termination.reason is TerminationReason.DEADLINE
    if machine.termination.reason is TerminationReason.CANNOT_START:
        return machine.failure is not FailureClass.CAPACITY
    return machine.failure is FailureClass.UNKNOWN and machine.progress.ready_at is None
