"""A server in front of moto for what moto cannot do: ClientTokens, refusals, silence.

Passes every request on, but answers a CreateFleet with a known ClientToken as before, and plays
what a test scripted for an action instead. Remembers every request.
"""

import asyncio
import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from aiohttp import ClientSession, web


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of EC2's own kind. `status` 0 breaks the connection, -1 waits for `release`."""

    status: int
    code: str = ""
    message: str = ""
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    """Whether the request is passed on first: carried out, but its answer is lost."""


@dataclass(slots=True)
class Ec2Front:
    """The handler and what it has seen."""

    behind: str
    session: ClientSession
    seen: list[dict[str, str]] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    _replies: dict[str, deque[Reply]] = field(default_factory=lambda: defaultdict(deque))
    _answers: dict[str, asyncio.Task[tuple[int, bytes]]] = field(default_factory=dict)

    def script(self, action: str, *replies: Reply) -> None:
        """Play these for the next requests of an action, in order."""
        self._replies[action].extend(replies)

    def requests(self, action: str) -> list[dict[str, str]]:
        """The requests of one action so far."""
        return [one for one in self.seen if one["Action"] == action]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        raw = await request.read()
        target = request.headers.get("X-Amz-Target", "")
        if target:
            return await self._service_quotas(request, target.rpartition(".")[2], raw)
        form = {key: values[0] for key, values in parse_qs(raw.decode()).items()}
        self.seen.append(form)
        scripted = self._replies[form["Action"]]
        if scripted:
            reply = scripted.popleft()
            if reply.after:
                await self._answer(request, raw, form)
            if reply.status >= 0:
                return await self._play(request, reply)
            self.held.set()
            await self.release.wait()
        status, body = await self._answer(request, raw, form)
        return web.Response(status=status, body=body, content_type="text/xml")

    async def _service_quotas(
        self, request: web.Request, action: str, raw: bytes
    ) -> web.StreamResponse:
        """AWS JSON, which moto has no quotas in: what was scripted, else none at all."""
        self.seen.append({"Action": action, **json.loads(raw)})
        scripted = self._replies[action]
        reply = scripted.popleft() if scripted else Reply(200, body='{"Quotas": []}')
        text = reply.body or json.dumps({"__type": reply.code, "message": reply.message})
        return web.Response(
            status=reply.status, text=text, content_type="application/x-amz-json-1.1"
        )

    async def _answer(
        self, request: web.Request, raw: bytes, form: dict[str, str]
    ) -> tuple[int, bytes]:
        token = form.get("ClientToken", "")
        if form["Action"] != "CreateFleet" or not token:
            return await self._pass_on(request, raw)
        if token not in self._answers:
            self._answers[token] = asyncio.create_task(self._pass_on(request, raw))
        return await self._answers[token]

    async def _pass_on(self, request: web.Request, raw: bytes) -> tuple[int, bytes]:
        kept = {"Authorization", "Content-Type", "X-Amz-Date"}
        headers = {key: value for key, value in request.headers.items() if key in kept}
        async with self.session.post(self.behind, data=raw, headers=headers) as answer:
            return answer.status, await answer.read()

    async def _play(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        if reply.status == 0:
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError
        text = reply.body or (
            "<Response><Errors><Error>"
            f"<Code>{reply.code}</Code><Message>{reply.message}</Message>"
            "</Error></Errors><RequestID>r-1</RequestID></Response>"
        )
        return web.Response(
            status=reply.status, text=text, content_type="text/xml", headers=reply.headers
        )

    def unplayed(self) -> list[Reply]:
        """Return the scripted replies that no request used."""
        return [reply for replies in self._replies.values() for reply in replies]
