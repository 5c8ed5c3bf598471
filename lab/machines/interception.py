"""A proxy between machines and their controller that lets a listener read, break and forge requests."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp
from aiohttp import web

from lab.machines.settings import controller_settings


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """One request of a machine. `step` is the last part of its path. `machine` is empty in `attest`."""

    machine: str
    step: str
    authorization: str
    body: dict[str, Any]

    def __repr__(self) -> str:
        """Return a representation without the nonce."""
        return f"MachineRequest({self.step!r})"


class RequestListener(Protocol):
    """A listener for the requests of one machine."""

    async def before(self, said: MachineRequest) -> bool:
        """Called before a request is passed on. Return False to break the connection instead."""

    async def after(self, said: MachineRequest, status: int, answer: dict[str, Any]) -> None:
        """Called before the controller's answer is passed on to the machine."""


@dataclass(frozen=True, slots=True)
class _Line:
    controller: str
    listener: RequestListener


class Interception:
    """A loopback server (plain HTTP) that machines use as their controller. It passes requests on."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._starting = asyncio.Lock()
        self._url = ""

    async def redirect(self, instance_id: str, user_data: str, listener: RequestListener) -> str:
        """Return user data with this server as the controller, and call `listener` for the machine's requests.

        Raises ValueError for user data that name no controller.
        """
        controller = controller_settings(user_data).url
        async with self._starting:
            if self._runner is None:
                await self._start()
        self._lines[instance_id] = _Line(controller, listener)
        return user_data.replace(controller, f"{self._url}/{instance_id}")

    async def say(self, controller: str, said: MachineRequest) -> int:
        """Send a request in the name of a machine. Return the status, or 0 if no answer came."""
        place = f"machines/{said.machine}/{said.step}" if said.machine else said.step
        status, _, _ = await self._ask(f"{controller}/bootstrap/{place}", said)
        return status

    def controller_of(self, instance_id: str) -> str:
        """Return the controller that this machine's original user data name."""
        return self._lines[instance_id].controller

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._runner is not None and self._session is not None:
            await self._runner.cleanup()
            await self._session.close()
            self._runner = None

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/{instance}/bootstrap/agent.py", self._send_agent)
        app.router.add_post("/{instance}/bootstrap/attest", self._pass_on)
        app.router.add_post("/{instance}/bootstrap/machines/{machine}/{step}", self._pass_on)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"

    async def _send_agent(self, request: web.Request) -> web.Response:
        assert self._session is not None
        url = f"{self.controller_of(request.match_info['instance'])}/bootstrap/agent.py"
        async with self._session.get(url, params=request.query) as answer:
            return web.Response(status=answer.status, body=await answer.read())

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        line = self._lines[request.match_info["instance"]]
        where = request.match_info
        authorization = request.headers.get("Authorization", "")
        body = await request.json()
        said = MachineRequest(
            where.get("machine", ""), where.get("step", "attest"), authorization, body
        )
        if not await line.listener.before(said):
            return _broken(request)
        place = request.path.partition("/bootstrap/")[2]
        status, headers, value = await self._ask(f"{line.controller}/bootstrap/{place}", said)
        if not status:
            return _broken(request)
        await line.listener.after(said, status, value)
        if status == HTTPStatus.NO_CONTENT:
            return web.Response(status=status)
        return web.json_response(value, status=status, headers=headers)

    async def _ask(
        self, url: str, said: MachineRequest
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        assert self._session is not None
        headers = {"Authorization": said.authorization} if said.authorization else {}
        try:
            async with self._session.post(url, json=said.body, headers=headers) as answer:
                kept = {k: v for k, v in answer.headers.items() if k == "Retry-After"}
                empty = answer.status == HTTPStatus.NO_CONTENT
                return answer.status, kept, {} if empty else await answer.json()
        except (aiohttp.ClientError, TimeoutError):
            return 0, {}, {}


def _broken(request: web.Request) -> web.Response:
    """Break the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=HTTPStatus.BAD_GATEWAY)
