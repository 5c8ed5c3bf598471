"""Many runners and many jobs at once, on one process."""

import asyncio
from collections import Counter

import aiohttp

from autoscaler.controller.system import SystemClock
from lab.github.server import LabGitHub
from lab.github.settings import LabApp, LabGitHubOptions, LabOrganization
from tests.lab.github.harness import APP, SECRET, Client, Key, Listener, job
from tests.patience import PATIENCE

RUNNERS = 120
CLASSES = (("gpu",), ("gpu", "linux"), ("arm",))


async def test_every_job_runs_exactly_once(key: Key, listener: Listener) -> None:
    options = LabGitHubOptions(scale=60.0, pick="arbitrary", seed=3)
    clock = SystemClock(scale=60.0, epoch=1.7e9)
    lab = LabGitHub(
        [LabApp(APP, key.public, SECRET, listener.url)],
        [LabOrganization("acme", ("rocket",))],
        clock,
        options,
    )
    await lab.start()
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            client = Client(lab, key, session)
            await client.token()
            runners = [
                await client.runner(f"r{number}", ("gpu", "linux", "arm"))
                for number in range(RUNNERS)
            ]
            work = [asyncio.create_task(runner.run()) for runner in runners]
            lab.push([job(f"job {n}", CLASSES[n % 3]) for n in range(RUNNERS)])
            ran = await asyncio.gather(*work)
            await asyncio.wait_for(lab.settled(), PATIENCE)
            await lab.delivered()
    finally:
        await lab.close()
    assert sorted(ran) == [one.id for one in lab.jobs]
    assert all(len(one.starts) == one.assigned == 1 for one in lab.jobs)
    assert lab.runners == []
    seen = Counter(listener.actions())
    assert len(seen) == 3 * RUNNERS
    assert set(seen.values()) == {1}
