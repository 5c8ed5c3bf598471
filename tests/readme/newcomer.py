"""The lab's GitHub as a newcomer has it: an organization without an App. And what its owner does there."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import yaml

from autoscaler.controller.system import SystemClock
from lab.github.records import Job, JobStatus
from lab.github.server import LabGitHub
from lab.github.settings import JobSpec, LabOrganization
from tests.lab.system.pace import PATIENCE, stretched
from tests.setup.browser import FakeBrowser

ORGANIZATION, REPOSITORY = "acme", "rocket"
"""The names in the README."""

_PAGE = re.compile(r"Open (http://\S+) in a browser")


@dataclass(frozen=True, slots=True)
class Newcomer:
    """An owner of the organization, with a browser."""

    github: LabGitHub
    browser: FakeBrowser

    async def look(self, line: str) -> None:
        """Do in the browser what a line of `autoscaler init` asks for: create the App, and install it."""
        page = _PAGE.search(line)
        if page is None:
            return
        confirm = await self.browser.send(await self.browser.open(page[1]))
        await self.browser.send(await self.browser.send(confirm))

    def start_workflow(self, runs_on: list[str]) -> Job:
        """Do what `gh workflow run` does. The job takes a second."""
        spec = JobSpec(
            "gpu", f"{ORGANIZATION}/{REPOSITORY}", tuple(runs_on), 1.0, event="workflow_dispatch"
        )
        [job] = self.github.push([spec])
        return job


@asynccontextmanager
async def newcomer() -> AsyncIterator[Newcomer]:
    """Start a GitHub that knows no App."""
    github = LabGitHub([], [LabOrganization(ORGANIZATION, (REPOSITORY,))], SystemClock())
    await github.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Newcomer(github, FakeBrowser(session))
    finally:
        await github.close()


def labels_of(workflow: str) -> list[str]:
    """Return the labels that the only job of a workflow asks for."""
    [job] = yaml.safe_load(workflow)["jobs"].values()
    found: list[str] = job["runs-on"]
    return found


async def until_green(job: Job, why: object) -> None:
    """Return when a job has succeeded, at its first start. Fails with `why`."""
    try:
        async with asyncio.timeout(stretched(PATIENCE)):
            while job.status is not JobStatus.COMPLETED:  # noqa: ASYNC110 - another process' doing
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"the job is {job.status}; {why}") from None
    assert (job.conclusion, len(job.starts)) == ("success", 1), json.dumps(str(job))
