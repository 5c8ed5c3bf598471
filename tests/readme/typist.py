"""Types commands into a shell, and measures how long each step of the README takes."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.watchdog.children import kill

OnLine = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell on some host. `words` start it; the command follows as the last word."""

    words: Sequence[str]
    variables: Mapping[str, str]
    folder: Path | None = None

    async def start(self, command: str) -> asyncio.subprocess.Process:
        """Start a command, whose output is one stream."""
        return await asyncio.create_subprocess_exec(
            *self.words,
            command,
            cwd=self.folder,
            env=dict(self.variables),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )


@dataclass(slots=True)
class Typist:
    """Types into `shell`. `replaced` are the README's example values, and the lab's in their place."""

    shell: Shell
    replaced: dict[str, str]
    seconds: list[tuple[str, float]] = field(default_factory=list)
    """The steps, and how long each took."""
    _began: float = field(default_factory=time.monotonic)

    def filled(self, command: str) -> str:
        """Return a command with the lab's values. Raises KeyError for an example value without one."""
        return re.sub(
            r"\b(?:vpc|subnet|sg)-0\w{16}\b|us-east-1|8000|my-context",
            lambda found: self.replaced[found[0]],
            command,
        )

    def step(self, title: str) -> None:
        """Note that a step has ended."""
        now = time.monotonic()
        self.seconds.append((title, now - self._began))
        self._began = now

    async def type(self, command: str, on_line: OnLine | None = None) -> str:
        """Run a command, and return its output. Fails with the output if the command fails."""
        status, output = await self.attempt(command, on_line)
        assert status == 0, f"$ {command}\n{output}\nexit status {status}"
        return output

    async def attempt(self, command: str, on_line: OnLine | None = None) -> tuple[int, str]:
        """Run a command, and return its exit status and output."""
        process = await self.shell.start(command)
        assert process.stdout is not None
        output = ""
        try:
            async for line in process.stdout:
                output += line.decode(errors="replace")
                if on_line is not None:
                    await on_line(line.decode(errors="replace"))
            return await process.wait(), output
        finally:
            if process.returncode is None:
                kill([process.pid])
                with suppress(ProcessLookupError):
                    await process.wait()

    def report(self) -> str:
        """Return the steps with their seconds, one a line."""
        lines = [f"{seconds:7.1f} s  {title}" for title, seconds in self.seconds]
        return "\n".join([*lines, f"{sum(one for _, one in self.seconds):7.1f} s  in all"])


def clean(**more: str) -> dict[str, str]:
    """Return variables without those of this process that change what commands do."""
    kept = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PATH": os.environ["PATH"],
        "no_proxy": "127.0.0.1",
        **more,
    }
