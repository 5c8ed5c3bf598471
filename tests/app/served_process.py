"""`autoscaler serve` as a process of its own, whose log lines a test waits for."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.app.test_running import ROOT, SERVE
from tests.patience import PATIENCE

TOKEN = "t" * 40


def write_operators(folder: Path) -> None:
    """Write the file `admin-token`, with one operator's token."""
    (folder / "admin-token").write_text(f"alice operate {TOKEN}\n")
    (folder / "admin-token").chmod(0o600)


@asynccontextmanager
async def serving(
    folder: Path,
    *providers: str,
    environment: Mapping[str, str] | None = None,
    before: str = "",
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a controller with a folder's fleet.yaml, and kill it at the end if it still runs.

    `providers` are lines of the registry; without one: those of the product. `before` is Python
    that runs first.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        "-c",
        before + SERVE,
        *providers,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment or {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def logged(process: asyncio.subprocess.Process, *events: str) -> dict[str, Any]:
    """Return the next line of one of these events."""
    assert process.stdout is not None
    async for text in process.stdout:
        line: dict[str, Any] = json.loads(text)
        if line["event"] in events:
            return line
    raise AssertionError(f"the process ended without {' or '.join(events)}")
