"""A real controller in a process of its own, started as an operator starts it, and killed at will.

It speaks to it only by signals and over HTTP, like anybody else.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

_READY_POLL = 0.05


class ControllerProcess:
    """A controller on one fleet.yaml; may be started again after its end.

    `program` is what Python runs, `autoscaler serve` and its arguments. `url` is its main
    listener's. Its log is appended to `log`.
    """

    def __init__(
        self, program: Sequence[str], url: str, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.url = url
        self._command = (sys.executable, *program)
        self._log = log
        # Nothing of the host's own AWS set-up is to be looked at, let alone used.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        self._environment = {**inherited, **environment}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it; returns at once."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of the process that was started last. Raises RuntimeError before there was one."""
        if self._process is None:
            raise RuntimeError("the controller was not started")
        return self._process.pid

    async def ready(self, patience: float = 300.0) -> None:
        """Return once it says that it is ready. Raises RuntimeError with its log's end if it does not."""
        try:
            async with asyncio.timeout(patience), aiohttp.ClientSession() as session:
                while not await self._says_ready(session):
                    if not self.running:
                        raise RuntimeError(f"the controller ended:\n{self.log_end()}")
                    await asyncio.sleep(_READY_POLL)
        except TimeoutError as error:
            raise RuntimeError(f"the controller is not ready:\n{self.log_end()}") from error

    def strike(self) -> None:
        """SIGKILL, without waiting for its end; nothing happens if it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        """Wait for its end; its exit status, that of a signal negative."""
        return 0 if self._process is None else await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        await self._end(signal.SIGKILL)

    async def terminate(self, patience: float = 300.0) -> int:
        """SIGTERM, and SIGKILL if it is still there after so many seconds; its exit status."""
        try:
            async with asyncio.timeout(patience):
                return await self._end(signal.SIGTERM)
        except TimeoutError:
            return await self._end(signal.SIGKILL)

    async def metrics(self) -> dict[str, float]:
        """Its metrics by `name{labels}`, as scraped; empty while it does not answer."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(f"{self.url}/metrics") as answer,
            ):
                return parse_metrics(await answer.text())
        except (aiohttp.ClientError, TimeoutError):
            return {}

    def log_end(self, lines: int = 30) -> str:
        """The end of its log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    async def _says_ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(number)
        return await process.wait()


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus' text format by `name{labels}`; comments are left out."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found
