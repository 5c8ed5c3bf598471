"""The machines' HTTP endpoints (docs/bootstrap.md): checks format and size, and answers.

`BootstrapService` verifies identities and assigns registrations. Nonces, proofs and JIT
configurations are never logged.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    BootstrapRefusedError,
)
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import MachineId, RunnerName, Seconds
from autoscaler.observability.redaction import redact_text
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bodies import Bodies
from autoscaler.server.completion import Completion
from autoscaler.server.machines import requests
from autoscaler.server.refusal_log import RefusalLog

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BEARER = re.compile(r"[Bb]earer ([0-9a-fA-F]{64})")

_CLOSES: frozenset[requests.Step] = frozenset({"acknowledge", "heartbeat"})
"""Steps whose answer closes the connection. A machine with a job sends one request a minute, and an idle
connection costs 12 KB, or several times as much with TLS."""

Result = dict[str, object] | None
"""The JSON body of a 200 answer, or None for 204."""

Read = Callable[[], AbstractAsyncContextManager[bytes]]
"""Reads a request's body, which counts as in memory inside the context. Raises: BodyRefusedError."""


@dataclass(frozen=True, slots=True)
class BootstrapLimits:
    """Limits of the bootstrap endpoints.

    `body` is the maximum number of bytes of a request. At most `attestations` attestations are verified
    at once, because verifying an EC2 proof takes half a millisecond. At most `queued` further ones wait:
    more than machines boot at once, and 64 MiB at most at 64 KiB each.
    """

    body: int = 64 * 1024
    body_timeout: Seconds = 10.0
    attestations: int = 64
    queued: int = 1024


_Act = Callable[[MachineId, str, Any], Coroutine[Any, Any, Result]]
"""Carries out a step: gets the machine's ID, its nonce and the body."""


class BootstrapEndpoint:
    """The machines' routes.

    `agent` is the agent of this version. `earlier` are the agents of other versions, for machines that
    those versions launched.
    """

    def __init__(
        self,
        bootstrap: BootstrapService,
        agent: bytes,
        telemetry: Telemetry,
        limits: BootstrapLimits | None = None,
        earlier: Iterable[bytes] = (),
    ) -> None:
        self._bootstrap = bootstrap
        self._agents = {hashlib.sha256(one).hexdigest(): one for one in (agent, *earlier)}
        self._telemetry = telemetry
        self._limits = limits or BootstrapLimits()
        self._bodies = Bodies(self._limits.body, self._limits.body_timeout)
        self._completion = Completion()
        self._refusals = RefusalLog()
        self._polls: set[asyncio.Task[Assigned | None]] = set()
        self._checks = asyncio.Semaphore(self._limits.attestations)
        self._queued = 0
        self._closing = False
        self._steps = self._every_step()
        self.agent_sha256 = hashlib.sha256(agent).hexdigest()

    def add_to(self, app: web.Application, patience: Seconds, /) -> None:
        """Add the routes to a listener. When it stops, long polls end at once and other requests finish."""

        async def finish(_: web.Application) -> None:
            await self._completion.finish(patience)

        app.router.add_get("/bootstrap/agent.py", self._send_agent)
        app.router.add_post("/bootstrap/attest", self._read_attestation)
        for step in self._steps:
            route = f"/bootstrap/machines/{{machine}}/{step}"
            app.router.add_post(route, partial(self._receive, step))
        app.on_shutdown.append(self._end_polls)
        app.on_cleanup.append(finish)

    def _every_step(self) -> dict[requests.Step, tuple[type[requests.Request], _Act]]:
        """Return the routes for attested machines: the shape of the body, and what carries out the step."""
        port = self._bootstrap
        return {
            "stage": (
                requests.StageRequest,
                lambda id_, nonce, body: port.stage(id_, nonce, body.stage),
            ),
            "health-checks": (requests.HealthChecksRequest, self._health_checks),
            "poll": (requests.PollRequest, self._poll),
            "acknowledge": (
                requests.AcknowledgeRequest,
                lambda id_, nonce, body: port.acknowledge(id_, nonce, RunnerName(body.runner)),
            ),
            "heartbeat": (requests.Request, lambda id_, nonce, _: port.heartbeat(id_, nonce)),
            "may-release": (requests.Request, self._may_release),
            "release": (requests.Request, self._release),
            "exit": (requests.ExitRequest, self._exit),
        }

    async def _send_agent(self, request: web.Request) -> web.Response:
        wanted = request.query.get("sha256", self.agent_sha256)
        agent = self._agents.get(wanted)
        if agent is None:
            self._telemetry.bootstrap("agent", "not_kept")
            return error_answer(404, "not_kept", None)
        headers = {"ETag": f'"{wanted}"', "Cache-Control": "no-cache"}
        known = request.if_none_match or ()
        if any(tag.value in (wanted, "*") for tag in known):
            self._telemetry.bootstrap("agent", "not_modified")
            return web.Response(status=304, headers=headers)
        self._telemetry.bootstrap("agent", "ok")
        return web.Response(body=agent, content_type="text/x-python", headers=headers)

    async def _read_attestation(self, request: web.Request) -> web.Response:
        return await self.receive_attestation(partial(self._bodies.read, request))

    async def _receive(self, step: requests.Step, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        read = partial(self._bodies.read, request)
        return await self.receive_step(step, request.match_info["machine"], authorization, read)

    async def receive_attestation(self, read: Read) -> web.Response:
        """Answer an attestation."""

        async def work() -> Result:
            body = await _body(read, requests.AttestationRequest)
            checking = await self._wait_to_verify()
            return await self._completion.run(self._attest(body, checking))

        return await self._answer("attest", None, work())

    async def receive_step(
        self, name: requests.Step, machine: str, authorization: str, read: Read
    ) -> web.Response:
        """Answer a request of any step but the attestation.

        Reads the body only if the nonce is the machine's: a stranger costs no more than a look at the headers.
        """
        shape, act = self._steps[name]
        if not _MACHINE.fullmatch(machine):
            machine = ""

        async def work() -> Result:
            if not machine:
                raise BootstrapRefusedError(400, "malformed")
            bearer = _BEARER.fullmatch(authorization)
            if bearer is None:
                raise BootstrapRefusedError(401, "nonce")
            self._bootstrap.authenticate(MachineId(machine), bearer[1])
            body = await _body(read, shape)
            acting = act(MachineId(machine), bearer[1], body)
            # A poll ends with its connection. Other requests are carried out after a disconnect, too.
            return await (acting if name == "poll" else self._completion.run(acting))

        return await self._answer(name, machine or None, work())

    async def _answer(
        self, step: requests.Step, machine: str | None, work: Awaitable[Result]
    ) -> web.Response:
        word = "failed"
        try:
            result = await work
            word = "ok"
        except requests.REFUSALS as error:
            refusal = requests.refusal_of(error)
            word = refusal.word
            fields = {"step": step, "status": refusal.status, "reason": word}
            self._refusals.note("bootstrap_request_refused", step, word, machine=machine, **fields)
            answer = error_answer(refusal.status, word, refusal.retry_after)
        except (asyncio.CancelledError, ConnectionError):
            word = "aborted"
            raise
        else:
            answer = web.Response(status=204) if result is None else json_answer(200, result)
        finally:
            self._telemetry.bootstrap(step, word)
        if self._closing or step in _CLOSES:
            answer.force_close()
        return answer

    async def _wait_to_verify(self) -> ExitStack:
        """Wait until an attestation may be verified. Closing the result lets the next one start.

        The result is closed after the verification, before the wait for a provider listing.

        Raises: BootstrapRefusedError if too many attestations wait.
        """
        if self._checks.locked() and self._queued >= self._limits.queued:
            raise BootstrapRefusedError(429, "busy")
        self._queued += 1
        try:
            await self._checks.acquire()
        finally:
            self._queued -= 1
        checking = ExitStack()
        checking.callback(self._checks.release)
        return checking

    async def _attest(self, body: requests.AttestationRequest, checking: ExitStack) -> Result:
        with checking:
            answer = await self._bootstrap.attest(
                body.provider, body.proof, body.nonce, body.protocol, body.agent, checking.close
            )
        return {"machine": answer.machine, "sku": answer.sku, "health_checks": answer.health_checks}

    async def _health_checks(
        self, machine: MachineId, nonce: str, body: requests.HealthChecksRequest
    ) -> Result:
        summary = requests.readable(redact_text(body.summary()))
        await self._bootstrap.health_checks(
            machine, nonce, body.passed, summary, body.runner_version()
        )
        return None

    async def _poll(self, machine: MachineId, nonce: str, body: requests.PollRequest) -> Result:
        found = await self._wait_for_assignment(machine, nonce, body.wait)
        if found is None:
            return {"state": "ready"}
        secret = {"runner": found.runner, "jit_config": found.jit_config}
        return {"state": "assigned", **secret, "job": found.job}

    async def _wait_for_assignment(
        self, machine: MachineId, nonce: str, wait: Seconds
    ) -> Assigned | None:
        # While the listener stops, a poll asks the port once and does not wait.
        waiting = asyncio.get_running_loop().create_task(
            self._bootstrap.poll(machine, nonce, 0.0 if self._closing else wait)
        )
        self._polls.add(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._closing and this is not None and not this.cancelling():
                return None
            raise
        finally:
            self._polls.discard(waiting)

    async def _end_polls(self, _: web.Application) -> None:
        self._closing = True
        for waiting in self._polls:
            waiting.cancel()

    async def _may_release(self, machine: MachineId, nonce: str, _: requests.Request) -> Result:
        return {"allowed": await self._bootstrap.may_release(machine, nonce)}

    async def _release(self, machine: MachineId, nonce: str, _: requests.Request) -> Result:
        return {"status": await self._bootstrap.release(machine, nonce)}

    async def _exit(self, machine: MachineId, nonce: str, body: requests.ExitRequest) -> Result:
        detail = requests.readable(redact_text(body.detail))
        await self._bootstrap.exited(machine, nonce, detail, body.known_reason())
        return None


async def _body(read: Read, shape: type[requests.Request]) -> Any:
    async with read() as body:
        return shape.model_validate_json(body or b"{}")
