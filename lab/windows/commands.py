"""Answers shutdown.exe and schtasks.exe of Windows machines as Windows does, over TCP on loopback.

The exit status of `shutdown` is that of the API (InitiateSystemShutdownEx, AbortSystemShutdown) in WinError.h.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Protocol

NOT_SCHEDULED = 1116
"""ERROR_NO_SHUTDOWN_IN_PROGRESS."""

SCHEDULED = 1190
"""ERROR_SHUTDOWN_IS_SCHEDULED."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit status of a command, and what it prints."""

    status: int
    text: str = ""


class Computer(Protocol):
    """A Windows machine, as its commands see it."""

    def schedule_shutdown(self, seconds: float) -> bool:
        """Power off after `seconds` of the machine. Return False if a shutdown is already scheduled."""

    def abort_shutdown(self) -> bool:
        """Cancel the scheduled shutdown. Return False if there is none."""

    async def run_task(self, name: str) -> bool:
        """Run a scheduled task. Return False if there is none of this name."""


async def run_command(computer: Computer, words: list[str]) -> Answer:
    """Return the answer of Windows to a command. Raises ValueError for one that the lab does not know."""
    match words:
        case ["shutdown", "/a"]:
            if computer.abort_shutdown():
                return Answer(0)
            text = "Unable to abort the system shutdown because no shutdown was in progress."
            return Answer(NOT_SCHEDULED, f"{text}({NOT_SCHEDULED})")
        case ["shutdown", "/s", *_, "/t", seconds]:
            if computer.schedule_shutdown(float(seconds)):
                return Answer(0)
            text = "A system shutdown has already been scheduled."
            return Answer(SCHEDULED, f"{text}({SCHEDULED})")
        case ["schtasks", "/run", "/tn", name]:
            if await computer.run_task(name):
                return Answer(0, f'SUCCESS: Attempted to run the scheduled task "{name}".')
            return Answer(1, "ERROR: The system cannot find the file specified.")
    raise ValueError(f"the lab's Windows cannot run {words}")


class CommandServer:
    """Passes the commands of all machines of a host on to them.

    `computers` are the machines by ID. `answered` are the commands in their order: machine, words, exit status.
    `wrong` are the commands that the lab does not know.
    """

    def __init__(self) -> None:
        self.computers: dict[str, Computer] = {}
        self.answered: list[tuple[str, str, int]] = []
        self.wrong: list[str] = []
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> str:
        """Listen on a free port. Return the address for the variable LAB_WINDOWS. Idempotent."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            said = json.loads(await reader.readline())
            machine, words = said["machine"], said["words"]
            answer = await run_command(self.computers[machine], words)
            self.answered.append((machine, " ".join(words), answer.status))
        except (KeyError, ValueError, OSError) as error:
            self.wrong.append(repr(error))
            answer = Answer(1, repr(error))
        try:
            writer.write(
                json.dumps({"status": answer.status, "text": answer.text}).encode() + b"\n"
            )
            await writer.drain()
        except ConnectionError:
            return  # the machine ended meanwhile
        finally:
            writer.close()
