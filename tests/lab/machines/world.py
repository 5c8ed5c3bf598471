"""A small but real HTTP server: metadata service, bootstrap protocol and the lab's runner protocol.

It checks what it is sent and keeps a list of what it was reported, in order.
"""

import asyncio
import base64
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from lab.machine_host import LabMachine
from tests.patience import PATIENCE


@dataclass
class ServedMachine:
    """One machine as the server knows it."""

    instance: str
    nonces: list[str] = field(default_factory=list)
    health_checks: bool = False
    runner: str | None = None
    acknowledged: bool = False


@dataclass
class World:
    """`answers` are given first, per step, before the server behaves; `forever` ones always.

    `jobs` are the seconds of jobs that wait; with `assignment` set, machines get one. `job` is what the hooks
    get with it. `parameters` are further ones of the health checks, `files` what is served besides.
    `conclusions` and `exits` are what runners and agents reported in the end.
    """

    scale: float
    agent: bytes = b""
    jobs: list[float] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    assignment: bool = True
    registered: bool = True
    allowed: list[bool] = field(default_factory=list)
    deletions: list[int] = field(default_factory=list)
    answers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    forever: dict[str, int] = field(default_factory=dict)
    reported: list[tuple[str, str]] = field(default_factory=list)
    conclusions: list[str] = field(default_factory=list)
    exits: list[dict[str, Any]] = field(default_factory=list)
    served_machines: dict[str, ServedMachine] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    tokens: int = 0
    issued: set[str] = field(default_factory=set)
    off: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    url: str = ""

    def steps(self, instance: str, *omitted: str) -> list[str]:
        """Return the steps of this machine in order, with repeats of a step as one."""
        found: list[str] = []
        for who, step in self.reported:
            if who == instance and step not in omitted and (not found or found[-1] != step):
                found.append(step)
        return found

    def count(self, step: str) -> int:
        return sum(1 for _, said in self.reported if said == step)

    def machine(self, instance: str, user_data: str, platform: str = "linux") -> LabMachine:
        async def powered_off() -> None:
            self.off.append(instance)

        url = f"{self.url}/metadata/{instance}"
        return LabMachine(instance, "g5.xlarge", platform, user_data, url, powered_off)

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what)

    # --- metadata --------------------------------------------------------------------------------

    async def token(self, request: web.Request) -> web.Response:
        self.check("X-aws-ec2-metadata-token-ttl-seconds" in request.headers, "token ttl")
        self.tokens += 1
        self.issued.add(f"token-{self.tokens}")
        return web.Response(text=f"token-{self.tokens}\n")

    async def identity(self, request: web.Request) -> web.Response:
        token = request.headers.get("X-aws-ec2-metadata-token")
        self.check(token in self.issued, "metadata token")
        self.issued.discard(token or "")
        proof = base64.b64encode(request.match_info["instance"].encode()).decode()
        return web.Response(text=proof[:4] + "\n" + proof[4:] + "\n")

    # --- bootstrap -------------------------------------------------------------------------------

    async def send_agent(self, request: web.Request) -> web.Response:
        self.reported.append(("", "agent"))
        self.check(len(request.query.get("sha256", "")) == 64, "which agent")
        return web.Response(body=self.agent)

    def refusal(self, step: str) -> web.Response | None:
        status = self.answers[step].pop(0) if self.answers[step] else self.forever.get(step)
        if status is None:
            return None
        headers = {"Retry-After": "2"} if status in (429, 503) else {}
        return web.json_response({"error": "refused"}, status=status, headers=headers)

    async def send_file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    async def attest(self, request: web.Request) -> web.Response:
        body = await request.json()
        instance = base64.b64decode(body["proof"], validate=True).decode()
        self.reported.append((instance, "attest"))
        self.check(body["protocol"] == 1 and body["provider"] == "lab", "attest")
        self.check(bool(re.fullmatch(r"[0-9a-f]{64}", body["nonce"])), "nonce")
        if refused := self.refusal("attest"):
            return refused
        served_machine = self.served_machines.setdefault(f"m-{instance}", ServedMachine(instance))
        served_machine.nonces.append(body["nonce"])
        served_machine.health_checks = False
        health_checks: dict[str, Any] = {
            "disk_gb": 0.001,
            "clock_skew_s": 60,
            "github": self.url + "/github",
        }
        health_checks |= self.parameters
        return web.json_response(
            {"machine": f"m-{instance}", "sku": "linux.gpu", "health_checks": health_checks}
        )

    async def step(self, request: web.Request) -> web.Response:
        served_machine = self.served_machines[request.match_info["machine"]]
        step = request.match_info["step"]
        self.reported.append((served_machine.instance, step))
        if request.headers.get("Authorization") != f"Bearer {served_machine.nonces[-1]}":
            return web.json_response({"error": "nonce"}, status=401)
        if refused := self.refusal(step):
            return refused
        body = await request.json()
        act: dict[str, Callable[[ServedMachine, dict[str, Any]], Any]] = {
            "health-checks": self.health_checks,
            "stage": self.stage,
            "exit": self.exit,
            "poll": self.poll,
            "acknowledge": self.acknowledge,
            "may-release": self.may_release,
            "release": self.release,
        }
        answer = await act[step](served_machine, body) if step in act else None
        return web.Response(status=204) if answer is None else web.json_response(answer)

    async def health_checks(self, served_machine: ServedMachine, body: dict[str, Any]) -> None:
        self.check(body["passed"] is True, f"health checks {body}")
        served_machine.health_checks = True

    async def stage(self, served_machine: ServedMachine, body: dict[str, Any]) -> None:
        self.check(isinstance(body["stage"], str), "stage")

    async def exit(self, served_machine: ServedMachine, body: dict[str, Any]) -> None:
        self.exits.append(body)

    async def poll(self, served_machine: ServedMachine, body: dict[str, Any]) -> dict[str, Any]:
        self.check(served_machine.health_checks, "poll before the health checks")
        self.check(0 < body["wait"] <= 50, "wait")
        end = asyncio.get_running_loop().time() + body["wait"] / self.scale
        while asyncio.get_running_loop().time() < end and not self.assignment:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if not self.assignment:
            return {"state": "ready"}
        served_machine.runner = f"fleet-{served_machine.instance}"
        token = {
            "server": self.url,
            "runner_id": served_machine.instance,
            "token": "t",
            "scale": self.scale,
        }
        secret = base64.b64encode(
            json.dumps({**token, "name": served_machine.runner}).encode()
        ).decode()
        answer = {"state": "assigned", "runner": served_machine.runner, "jit_config": secret}
        return {**answer, "job": self.job} if self.job else answer

    async def acknowledge(self, served_machine: ServedMachine, body: dict[str, Any]) -> None:
        self.check(body == {"runner": served_machine.runner}, "acknowledge")
        served_machine.acknowledged = True

    async def may_release(
        self, served_machine: ServedMachine, body: dict[str, Any]
    ) -> dict[str, Any]:
        return {"allowed": self.allowed.pop(0) if self.allowed else True}

    async def release(self, served_machine: ServedMachine, body: dict[str, Any]) -> dict[str, Any]:
        return {"status": self.deletions.pop(0) if self.deletions else 204}

    # --- the runner ------------------------------------------------------------------------------

    async def runner(self, request: web.Request) -> web.Response:
        instance, step = request.match_info["runner"], request.match_info["step"]
        self.reported.append((instance, step))
        self.check(request.headers.get("Authorization") == "Bearer t", "runner token")
        self.check(
            self.served_machines[f"m-{instance}"].acknowledged, "runner before the acknowledgement"
        )
        body = await request.json()
        if not self.registered:
            return web.Response(status=404)
        if step == "completed":
            self.conclusions.append(body["conclusion"])
        if step != "message":
            self.check(step == "connect" or body["job"] == 7, "job")
            return web.Response(status=self.answers[step].pop(0) if self.answers[step] else 204)
        if step in self.forever:
            return web.Response(status=self.forever[step])
        for _ in range(100):
            if self.jobs:
                job = {"id": 7, "name": "build (a, b)", "seconds": self.jobs.pop(0)}
                return web.json_response({"job": job})
            await asyncio.sleep(0.01)
        return web.Response(status=204)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    """Serve on a free port of the loopback."""
    app = web.Application()
    app.router.add_put("/metadata/{instance}/latest/api/token", world.token)
    document = "/metadata/{instance}/latest/dynamic/instance-identity/rsa2048"
    app.router.add_get(document, world.identity)
    app.router.add_get("/bootstrap/agent.py", world.send_agent)
    app.router.add_get("/files/{name}", world.send_file)
    app.router.add_post("/bootstrap/attest", world.attest)
    app.router.add_post("/bootstrap/machines/{machine}/{step}", world.step)
    app.router.add_post("/lab/runners/{runner}/{step}", world.runner)
    site_runner = web.AppRunner(app, shutdown_timeout=0.1)
    await site_runner.setup()
    site = web.TCPSite(site_runner, "127.0.0.1", 0)
    await site.start()
    host, port = site_runner.addresses[0][:2]
    world.url = f"http://{host}:{port}"
    try:
        yield world
    finally:
        await site_runner.cleanup()


async def until(happened: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for something to become true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not happened():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)
