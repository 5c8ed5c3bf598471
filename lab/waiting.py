"""Asks the controller why a job waits, with the command that an operator would use, and prints the answer."""

import asyncio
import os
import sys
from pathlib import Path

from rich.console import Console

from lab.github.records import Job, JobStatus
from lab.laboratory import Laboratory

PATIENCE = 180.0
"""Real seconds for the answer. With a load of 30 on two cores, 60 were not enough for the command to start."""

_LINES, _WIDTH = 40, 400


async def explain_oldest(lab: Laboratory, patience: float = PATIENCE) -> str:
    """Return what `autoscaler explain` says of the job that waits longest; empty if no job waits.

    If the controller does not answer, the text says so.
    """
    job = oldest_waiting(lab.github.jobs)
    if job is None:
        return ""
    command = ("-m", "autoscaler.cli", "explain", str(job.id), "-c", str(lab.folder / "fleet.yaml"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "no_proxy": "127.0.0.1", "COLUMNS": "100"},
    )
    try:
        async with asyncio.timeout(patience):
            output, _ = await process.communicate()
    except TimeoutError:
        return f"The controller did not explain job {job.id} within {patience:g} seconds."
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode(errors="replace").strip()


def oldest_waiting(jobs: list[Job]) -> Job | None:
    """Return the queued job that was queued first, or None."""
    waiting = [job for job in jobs if job.status in (JobStatus.QUEUED, JobStatus.WAITING)]
    return min(waiting, key=lambda job: job.queued_at or job.created_at, default=None)


def print_reasons(console: Console, log: str, explanation: str, keep: Path | None) -> None:
    """Print why a replay failed: the end of the log of a controller that exited, or else its explanation."""
    if log:
        _print_lines(console, "The last lines of the controller's log:", log)
    elif explanation:
        title = "What `autoscaler explain` says of the job that waits longest:"
        _print_lines(console, title, explanation)
    where = "--keep FOLDER keeps" if keep is None else f"{keep} has"
    console.print(f"{where} the controller's log, configuration and store.", soft_wrap=True)


def _print_lines(console: Console, title: str, text: str) -> None:
    console.print(f"\n{title}")
    lines = text.splitlines()
    for line in lines[:_LINES]:
        console.print(f"  {line[:_WIDTH]}".rstrip(), soft_wrap=True)
    if len(lines) > _LINES:
        console.print(f"  and {len(lines) - _LINES} more lines")
    console.print()
