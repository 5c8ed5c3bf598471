"""A runner that speaks the lab's protocol with the JIT configuration of its registration."""

import base64
import json
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass
class LabRunner:
    """Does single steps of a runner's life."""

    jit_config: str

    @property
    def config(self) -> dict[str, Any]:
        """The values in the JIT configuration."""
        found: dict[str, Any] = json.loads(base64.b64decode(self.jit_config))
        return found

    async def send(self, step: str, **body: Any) -> Any:
        """Send one step, and return the JSON of the answer, or None."""
        config = self.config
        url = f"{config['server']}/lab/runners/{config['runner_id']}/{step}"
        headers = {"Authorization": f"Bearer {config['token']}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(url, json=body) as answer,
        ):
            answer.raise_for_status()
            return await answer.json() if answer.status == 200 else None

    async def connect(self) -> None:
        """Become online."""
        await self.send("connect")

    async def start(self) -> int:
        """Become online, take a job that is queued and start it. Return the job's ID."""
        await self.connect()
        job = int((await self.send("message", wait=5.0))["job"]["id"])
        await self.send("started", job=job)
        return job
