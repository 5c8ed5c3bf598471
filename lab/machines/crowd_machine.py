"""Simulates one machine without its own process: it speaks the agent's and the runner's protocols.

It uses the agent's order of requests, timers and reactions to refusals, in coroutines of one process. It
has no disk and no listener process. Its health checks pass, except `failing_check` (its name and detail).
"""

import asyncio
import random
import secrets
import ssl
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from lab.machine_host import LabMachine
from lab.machines.settings import (
    ControllerSettings,
    LabRunner,
    controller_settings,
    lab_runner,
)
from lab.machines.wire import AttestAgain, ExitCause, PowerOff, TryAgain, Wire

PATIENCE = 900.0
HEARTBEAT = 60.0
POLL_WAIT = 50.0
NO_JOB = 120.0
RELEASE_AGAIN = 60.0
EXIT_REPORT = 300.0
STOP = 30.0
RENEW = 180.0
RETRY_FIRST = 1.0
RETRY_MOST = 30.0
"""The agent's timers, in lab seconds; a test compares them with the agent's own."""

_REFUSED = ExitCause("registration_refused", "GitHub refuses the registration")

MESSAGE_WAIT = 15.0
"""The longest wait of one request for a job to the lab's GitHub, in real seconds."""


@dataclass(slots=True)
class CrowdMachine:
    """One simulated machine. `live` returns when it has powered itself off."""

    wire: Wire
    lab: LabMachine
    failing_check: tuple[str, str] | None = None
    settings: ControllerSettings = field(init=False)
    tls: ssl.SSLContext | bool = field(default=True, init=False)
    nonce: str = field(default="", init=False, repr=False)
    machine: str = field(default="", init=False)
    answered_at: float = field(default=0.0, init=False)
    tries: int = field(default=0, init=False)
    ready: bool = field(default=False, init=False)
    job: bool = field(default=False, init=False)
    supervised: bool = field(default=False, init=False)
    work: tuple[LabRunner, Any] | None = field(default=None, init=False)

    async def live(self) -> None:
        """Run from the attestation to the power-off. Raises ValueError for user data without a controller."""
        self.settings = controller_settings(self.lab.user_data)
        if self.settings.ca is not None:
            self.tls = ssl.create_default_context(cadata=self.settings.ca)
        self.nonce = secrets.token_hex(32)
        self.answered_at = self.wire.now()
        heartbeats: asyncio.Task[None] | None = None
        try:
            heartbeats = asyncio.create_task(self._heartbeat())
            runner = await self._wait_for_assignment()
            self.supervised = True
            cause = await self._run(runner)
            heartbeats.cancel()
            await self._report_exit(cause)
            self.supervised = False
        except PowerOff:
            return
        finally:
            if heartbeats is not None:
                heartbeats.cancel()

    async def stop(self) -> None:
        """Send what the runner and the agent send at a shutdown. The caller has cancelled `live` before."""
        exit_report = {"detail": "the machine is being shut down", "reason": "stopped"}
        try:
            async with asyncio.timeout(STOP / self.wire.scale):
                if self.work is not None:
                    runner, job = self.work
                    failed = {"job": job, "conclusion": "failure"}
                    await self._insist(runner, "completed", failed)
                if self.supervised:
                    await self._ask("exit", exit_report)
        except (TimeoutError, TryAgain, AttestAgain, PowerOff):
            return

    async def _wait_for_assignment(self) -> LabRunner:
        while True:
            try:
                if not self.ready:
                    await self._introduce()
                began = self.wire.now()
                assigned = await self._ask("poll", {"wait": POLL_WAIT}, wait=POLL_WAIT)
                if assigned.get("state") == "assigned":
                    await self._acknowledge(str(assigned["runner"]))
                    return lab_runner(str(assigned["jit_config"]))
                self.tries = 0
                if self.wire.now() - began < RETRY_FIRST:
                    await self.wire.sleep(RETRY_FIRST)
            except AttestAgain:
                self.ready = False
                await self._pause(None)
            except TryAgain as reason:
                await self._pause(reason.retry_after)

    async def _introduce(self) -> None:
        proof = await self._proof()
        body = {
            "protocol": 1,
            "provider": self.settings.provider,
            "proof": proof,
            "nonce": self.nonce,
            "agent": "crowd",
        }
        url = f"{self.settings.url}/bootstrap/attest"
        answer = self._expect(await self.wire.post(url, "", body, ssl=self.tls))
        self.machine = str(answer.get("machine", ""))
        await self._ask("stage", {"stage": "health_checks"})
        await self._check_health()
        self.ready = True

    async def _check_health(self) -> None:
        """Report the health checks. Raises PowerOff if one fails, as the agent does then."""
        checks = [{"name": "runner_version", "ok": True, "detail": self.lab.runner_version}]
        if self.failing_check is not None:
            name, detail = self.failing_check
            checks.append({"name": name, "ok": False, "detail": detail})
        passed = self.failing_check is None
        await self._ask("health-checks", {"passed": passed, "checks": checks})
        if not passed:
            raise PowerOff

    async def _proof(self) -> str:
        base = self.lab.metadata_url.rstrip("/")
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        try:
            async with self.wire.session.put(
                f"{base}/latest/api/token", headers=lifetime
            ) as answer:
                answer.raise_for_status()
                token = {"X-aws-ec2-metadata-token": (await answer.text()).strip()}
            path = f"{base}/latest/dynamic/instance-identity/rsa2048"
            async with self.wire.session.get(path, headers=token) as answer:
                answer.raise_for_status()
                return "".join((await answer.text()).split())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TryAgain("metadata service") from error

    async def _acknowledge(self, runner: str) -> None:
        while True:
            try:
                await self._ask("acknowledge", {"runner": runner})
            except TryAgain as reason:
                await self._pause(reason.retry_after)
            else:
                return

    async def _pause(self, retry_after: float | None) -> None:
        left = self.answered_at + PATIENCE - self.wire.now()
        if left <= 0:
            raise PowerOff
        await self.wire.sleep(min(left, self._delay(retry_after)))

    def _delay(self, retry_after: float | None) -> float:
        self.tries += 1
        share = random.random()  # noqa: S311 - jitter
        if retry_after:
            return retry_after * (1 + share / 4)
        return min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(self.tries - 1, 10)) * (0.5 + share / 2)

    async def _heartbeat(self) -> None:
        """Send a heartbeat every minute from the attestation on. Other requests handle errors."""
        while True:
            await self.wire.sleep(HEARTBEAT)
            if self.machine:
                try:
                    await self._ask("heartbeat", {})
                except (TryAgain, AttestAgain, PowerOff):
                    continue

    async def _run(self, runner: LabRunner) -> ExitCause:
        """Act as the runner until it exits. Return the cause."""
        self.job = False
        asking = asyncio.create_task(self._release_when_idle())
        running = asyncio.create_task(self._be_runner(runner, asking))
        try:
            await asyncio.wait({asking, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done() or self.job:
                return await running
            return ExitCause("unused", "no job came, the registration is deleted")
        finally:
            asking.cancel()
            running.cancel()
            await asyncio.gather(asking, running, return_exceptions=True)

    async def _be_runner(self, runner: LabRunner, asking: asyncio.Task[None]) -> ExitCause:
        if await self._insist(runner, "connect", {}) == 404:
            return _REFUSED
        request = {"wait": MESSAGE_WAIT, "version": self.lab.runner_version}
        while True:
            status, answer = await self._send(runner, "message", request)
            if status == 403:
                return ExitCause("version_deprecated", "GitHub refuses the runner's version")
            if status == 404:
                return _REFUSED
            if status == 200:
                break
        self.job = True
        asking.cancel()
        job = answer["job"]
        self.work = runner, job["id"]
        await self._insist(runner, "started", {"job": job["id"]})
        over = asyncio.create_task(self._renew(runner, job["id"]))
        try:
            await asyncio.wait({over}, timeout=float(job["seconds"]))
        finally:
            over.cancel()
        await self._insist(runner, "completed", {"job": job["id"], "conclusion": "success"})
        self.work = None
        return ExitCause("exited", "the runner exited with status 0")

    async def _renew(self, runner: LabRunner, job: object) -> None:
        """Renew the job's lock. Return when GitHub says that the job is over."""
        status = 0
        while status != 200:
            await self.wire.sleep(RENEW)
            status, _ = await self._send(runner, "renew", {"job": job})

    async def _release_when_idle(self) -> None:
        """Ask for a release of the unused registration. Return when the controller has deleted it."""
        await self.wire.sleep(NO_JOB)
        while True:
            try:
                if (await self._ask("may-release", {})).get("allowed") is True:
                    status = (await self._ask("release", {})).get("status")
                    if status in (204, 404):
                        return
            except (TryAgain, AttestAgain, PowerOff):
                pass
            await self.wire.sleep(RELEASE_AGAIN)

    async def _insist(self, runner: LabRunner, step: str, body: dict[str, Any]) -> int:
        while True:
            status, _ = await self._send(runner, step, body)
            if status in (204, 404):
                return status

    async def _send(
        self, runner: LabRunner, step: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        url = f"{runner.server}/lab/runners/{runner.runner_id}/{step}"
        try:
            status, answer, _ = await self.wire.post(url, runner.token, body)
        except TryAgain:
            status, answer = 0, {}
        if status not in (200, 204, 403, 404):
            await asyncio.sleep(0.3)
        return status, answer

    async def _report_exit(self, cause: ExitCause) -> None:
        end = self.wire.now() + EXIT_REPORT
        self.tries = 0
        while (left := end - self.wire.now()) > 0:
            try:
                await self._ask("exit", {"detail": cause.detail, "reason": cause.reason})
            except TryAgain as reason:
                await self.wire.sleep(min(left, self._delay(reason.retry_after)))
            except AttestAgain:
                return
            else:
                return

    async def _ask(self, step: str, body: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        url = f"{self.settings.url}/bootstrap/machines/{self.machine}/{step}"
        limit = aiohttp.ClientTimeout(total=max(5.0, (wait + 10.0) / self.wire.scale))
        return self._expect(
            await self.wire.post(url, self.nonce, body, ssl=self.tls, timeout=limit)
        )

    def _expect(self, given: tuple[int, dict[str, Any], float | None]) -> dict[str, Any]:
        status, answer, retry_after = given
        if status in (200, 204):
            self.answered_at = self.wire.now()
            return answer
        if status in (401, 409):
            raise AttestAgain
        if status in (403, 410, 426):
            raise PowerOff
        raise TryAgain(str(status), retry_after)
