"""Queues that moto has, such as those that Terraform made, with long polls that do not block moto.

moto answers one request at a time, and a long poll would keep it busy.
"""

import asyncio
import json
import time
from collections.abc import Mapping

from lab.ec2.moto import MotoAnswer, MotoClient

_PAUSE = 0.25
"""Seconds between two short polls."""


class MotoQueues:
    """Passes requests about queues on to moto."""

    def __init__(self, moto: MotoClient) -> None:
        self._moto = moto

    async def forward(self, body: bytes, headers: Mapping[str, str]) -> MotoAnswer:
        """Answer a request of SQS. A long poll becomes short ones, until one has a message."""
        asked = json.loads(body)
        deadline = time.monotonic() + float(asked.get("WaitTimeSeconds", 0))
        if "WaitTimeSeconds" in asked:
            body = json.dumps({**asked, "WaitTimeSeconds": 0}).encode()
        while True:
            answer = await self._moto.forward(body, headers=headers)
            over = answer.status != 200 or time.monotonic() >= deadline
            if over or json.loads(answer.body).get("Messages"):
                return answer
            await asyncio.sleep(_PAUSE)
