"""Asks the controller why a job waits, with the command that an operator would use."""

import asyncio
import os
import sys

from lab.github.records import Job, JobStatus
from lab.laboratory import Laboratory

PATIENCE = 60.0
"""Real seconds for the command's answer. On a busy host it needs some seconds to start."""


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
