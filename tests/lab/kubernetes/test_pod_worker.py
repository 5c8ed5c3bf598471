"""How the lab's kubelet reports a pod whose API server does not answer at once."""

import asyncio
from pathlib import Path
from typing import Any, cast

import aiohttp

from lab.kubernetes.admin import Administrator
from lab.kubernetes.containers import Runtime
from lab.kubernetes.pod_worker import PodWorker
from tests.controller.virtual_time import on_virtual_time

POD = {
    "metadata": {"name": "a-pod", "namespace": "runners", "uid": "1"},
    "spec": {"containers": [{"name": "runner", "image": "i"}]},
}


class LosesTheFirst(Administrator):
    """Loses the first request, and keeps the phases that the others report."""

    def __init__(self) -> None:
        self.lost = False
        self.phases: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        user: str = "",
    ) -> Any:
        if not self.lost:
            self.lost = True
            raise aiohttp.ClientError
        self.phases.append(body["status"]["phase"])


@on_virtual_time
async def test_a_status_that_is_sent_again_does_not_replace_a_newer_one() -> None:
    admin = LosesTheFirst()
    worker = PodWorker(admin, cast(Runtime, Path()), POD, 1.0)
    [runner] = worker._containers
    runner.started = "2026-11-27T12:00:00Z"
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker._report())
        await asyncio.sleep(0.1)
        runner.end(0, "2026-11-27T12:00:01Z")
        tasks.create_task(worker._report())
    assert admin.phases == ["Running", "Succeeded"]
