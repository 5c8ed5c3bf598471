"""A laboratory at work, for planting faults: jobs that keep coming, and what an operator sees meanwhile."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from html import unescape
from typing import Any

import aiohttp
import yaml

from lab.ec2.moto import MotoProcess
from lab.fleet import LabFleet
from lab.github.settings import JobSpec, Limits
from lab.laboratory import Laboratory
from lab.machines.crowd import CrowdHost
from tests.lab.system.harness import ORGANIZATION, ec2_sku

REPOSITORIES = ("widgets", "gadgets", "tools")
SKUS = {
    "linux.g5": ec2_sku("g5.xlarge", accelerator={"vendor": "nvidia", "count": 1}),
    "linux.g4dn": ec2_sku("g4dn.xlarge", accelerator={"vendor": "nvidia", "count": 1}),
    "linux.g6": ec2_sku("g6.xlarge", accelerator={"vendor": "nvidia", "count": 1}),
    "linux.cpu": ec2_sku("c7i.2xlarge"),
    "linux.closed": ec2_sku("m7i.xlarge", access={"repositories": ["acme/widgets"]}),
}
"""The first three share one quota of EC2."""

JOB_EVERY = 90.0
"""Lab seconds between two jobs of one SKU."""

SHORTEST, LONGEST = 200.0, 500.0
"""Lab seconds of a job."""

OBJECTIVE = "all=.*:1800:0.9"
"""How soon jobs have to start: within half an hour of the lab, a real minute at its usual scale."""

_FAULTS = re.compile(r'<section[^>]* aria-labelledby="faults">(.*?)</section>', re.DOTALL)
_ITEM = re.compile(r"<li\b.*?</li>", re.DOTALL)
_VERDICT = re.compile(r'<h1 id="verdict">(.*?)</h1>', re.DOTALL)

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """The first page at one moment: its headline, and the text of each fault, in order.

    `at` is Unix time and `lab` the lab's time. `codes` are those of /admin/status, read just after the page.
    """

    at: float
    lab: float
    verdict: str
    faults: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(slots=True)
class LoadedLab:
    """A laboratory whose SKUs all have jobs at work. `machines` runs its machines."""

    lab: Laboratory
    machines: CrowdHost
    session: aiohttp.ClientSession
    memory: dict[str, Any] = field(default_factory=dict)
    """What the planting of a fault leaves for its end."""
    _chance: random.Random = field(default_factory=lambda: random.Random(1))
    _pushed: int = 0
    _log_read: int = 0

    def push(self, sku: str, repository: str, count: int = 1, **more: Any) -> None:
        """Queue jobs of a SKU."""
        specs = []
        for _ in range(count):
            self._pushed += 1
            seconds = self._chance.uniform(SHORTEST, LONGEST)
            name, where = f"build-{self._pushed}", f"{ORGANIZATION}/{repository}"
            specs.append(JobSpec(name, where, ("self-hosted", sku), seconds, **more))
        self.lab.github.push(specs)

    async def work(self) -> None:
        """Push jobs of all SKUs in turn, until cancelled."""
        while True:
            for sku in SKUS:
                closed = sku == "linux.closed"
                self.push(sku, "widgets" if closed else self._chance.choice(REPOSITORIES))
                await self.sleep(JOB_EVERY / len(SKUS))

    async def sleep(self, seconds: float) -> None:
        """Sleep for lab seconds."""
        await asyncio.sleep(seconds / self.lab.clock.scale)

    async def read(self) -> Reading:
        """Read the first page and the status, as a browser and the command do."""
        async with self.session.get(f"{self.lab.controller.url}/") as answer:
            page = await answer.text()
            assert answer.status == 200, page[:500]
        status = await self.ask("GET", "/admin/status")
        found = _VERDICT.search(page)
        assert found is not None, page[:500]
        faults = _FAULTS.search(page)
        assert (faults is not None) is ('id="faults"' in page), page[:500]
        items = _ITEM.findall(faults[1]) if faults is not None else []
        codes = tuple(str(one["code"]) for one in status["faults"])
        texts = tuple(map(_text, items))
        return Reading(time.time(), self.lab.clock.now(), _text(found[1]), texts, codes)

    async def ask(self, method: str, path: str, **body: str) -> Any:
        """Send an operator's request, and return the answer."""
        headers = {"Authorization": f"Bearer {self.lab.operator_token}"}
        url = f"{self.lab.controller.url}{path}"
        sent = body if method == "POST" else None
        async with self.session.request(method, url, headers=headers, json=sent) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    def new_log_lines(self) -> list[tuple[float, dict[str, Any]]]:
        """Return the controller's log lines since the last call, each with its Unix time."""
        with (self.lab.folder / "controller.log").open("rb") as file:
            file.seek(self._log_read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._log_read += len(whole) + len(newline)
        entries = [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]
        return [(datetime.fromisoformat(one["time"]).timestamp(), one) for one in entries]

    async def sign_in(self) -> None:
        """Sign in to the console: the session keeps the cookie."""
        url = self.lab.controller.url
        form = {"token": self.lab.operator_token, "next": "/"}
        async with self.session.post(
            f"{url}/sign-in", data=form, headers={"Origin": url}, allow_redirects=False
        ) as answer:
            assert answer.status == 303, await answer.text()


@asynccontextmanager
async def loaded(
    moto: MotoProcess,
    scale: float,
    change: Sequence[Callable[[Settings], None]] = (),
) -> AsyncIterator[LoadedLab]:
    """Start a laboratory, and have each SKU run jobs. `change` changes fleet.yaml before the start."""
    host = CrowdHost(scale)
    fleet = LabFleet(
        ORGANIZATION, REPOSITORIES, SKUS, scale=scale, most_machines=200, limits=Limits()
    )
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        Laboratory(fleet, moto, machines=host) as lab,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        file = lab.folder / "fleet.yaml"
        settings = yaml.safe_load(file.read_text())
        # Machines boot at this host's speed, while the lab's time runs faster.
        settings["metrics"] = {"wait_objectives": [OBJECTIVE]}
        for one in change:
            one(settings)
        file.write_text(yaml.safe_dump(settings, sort_keys=False))
        await lab.start_controller()
        made = LoadedLab(lab, host, session)
        await made.sign_in()
        working = asyncio.create_task(made.work())
        try:
            await _at_work(made)
            yield made
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def _at_work(made: LoadedLab) -> None:
    """Return once jobs of each SKU have ended, so that the fleet has the size that it keeps."""
    while len({job.spec.labels for job in made.lab.github.jobs if job.conclusion}) < len(SKUS):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def _text(html: str) -> str:
    return unescape(" ".join(re.sub(r"<[^>]*>", " ", html).split())).replace(" .", ".")
