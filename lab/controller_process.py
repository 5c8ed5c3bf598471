"""Starts, stops and kills a real controller process.

It talks to the controller only by signals and over HTTP, as an operator does.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

_READY_POLL = 0.05


class ControllerProcess:
    """A controller with one fleet.yaml. It can be started again after it exited.

    `program` is the Python arguments that run `autoscaler serve`. `url` is the address of the main
    listener. The controller's output is appended to `log`. `name` is what messages call it.
    """

    def __init__(
        self,
        program: Sequence[str],
        url: str,
        log: Path,
        environment: Mapping[str, str],
        name: str = "the controller",
    ) -> None:
        self.url = url
        self.name = name
        # The kernel ends the controller if the laboratory is killed. A fast clock keeps a processor busy.
        self._command = ("setpriv", "--pdeathsig", "TERM", sys.executable, *program)
        self._log = log
        # The controller must not use the host's own AWS settings.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        self._environment = {**inherited, **environment}
        self._process: asyncio.subprocess.Process | None = None
        self._ordered = False

    async def start(self) -> None:
        """Start the controller and return at once."""
        self._ordered = False
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
        """True if the controller was started and has not exited."""
        return self._process is not None and self._process.returncode is None

    @property
    def failed(self) -> bool:
        """True if the controller has exited, and this object did not end it."""
        return self._process is not None and not self.running and not self._ordered

    @property
    def pid(self) -> int:
        """Process id of the last start. Raises RuntimeError if the controller was never started."""
        if self._process is None:
            raise RuntimeError("the controller was not started")
        return self._process.pid

    async def ready(self, patience: float = 300.0) -> None:
        """Wait until /readyz answers 200. Raises RuntimeError with the end of the log if it does not."""
        try:
            async with asyncio.timeout(patience), aiohttp.ClientSession() as session:
                while not await self._is_ready(session):
                    if not self.running:
                        raise RuntimeError(f"{self.name} exited:\n{self.log_end()}")
                    await asyncio.sleep(_READY_POLL)
        except TimeoutError as error:
            raise RuntimeError(f"{self.name} is not ready:\n{self.log_end()}") from error

    def suspend(self) -> None:
        """Stop the controller and its worker processes with SIGSTOP, as a suspended host does."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended controller go on. Does nothing to another one."""
        if self.running:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self.pid, signal.SIGCONT)

    def kill_at_once(self) -> None:
        """Send SIGKILL and return at once. Does nothing if the controller has exited."""
        self._ordered = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        """Wait for the exit and return the exit status: negative if a signal killed the process."""
        return 0 if self._process is None else await self._process.wait()

    async def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        await self._end(signal.SIGKILL)

    async def terminate(self, patience: float = 300.0) -> int:
        """Send SIGTERM, then SIGKILL after `patience` seconds, and return the exit status."""
        try:
            async with asyncio.timeout(patience):
                return await self._end(signal.SIGTERM)
        except TimeoutError:
            return await self._end(signal.SIGKILL)

    async def metrics(self, patience: float = 5.0) -> dict[str, float]:
        """Return the scraped metrics by `name{labels}`, or nothing while the controller does not answer."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patience)) as session,
                session.get(f"{self.url}/metrics") as answer,
            ):
                return parse_metrics(await answer.text())
        except (aiohttp.ClientError, TimeoutError):
            return {}

    def log_end(self, lines: int = 30) -> str:
        """Return the last lines of the log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        self._ordered = self._ordered or process.returncode is None
        if process.returncode is None:
            process.send_signal(number)
            self.resume()
        return await process.wait()


def parse_metrics(text: str) -> dict[str, float]:
    """Parse Prometheus' text format into values by `name{labels}`, without comments."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found
