"""`autoscaler serve` as a process, with the lab's GitHub. The test plays the machine and its runner."""

import asyncio
import base64
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscaler.config.settings.fleet import Settings
from autoscaler.controller.ports.provider import ProvenIdentity, Provider, ProviderContext
from autoscaler.controller.system import SystemClock
from autoscaler.model.identifiers import ProviderMachineId, ProviderName
from lab.github.server import LabGitHub
from lab.github.settings import JobSpec, LabApp, LabOrganization
from tests.app.served_process import logged, serving
from tests.config.fleet_file import NAMED_FILES, Folder
from tests.controller.fakes_provider import FakeProvider, Instance
from tests.lab.github.harness import Client, StandIn, job, make_key
from tests.observability.test_traces import Receiver, values
from tests.observability.test_traces import receiver as receiver
from tests.providers.memory.kind import MemoryFactory, MemoryKind

FLEET = """\
fleet: ci
github:
  api_url: GITHUB
  apps: [{id: 1, private_key_file: app.pem}]
  webhook_secret_file: secret
  scopes: [{org: acme}]
server: {listen: "127.0.0.1:0", public_url: "http://127.0.0.1:8443"}
store: sqlite:///state.db
limits: {machines: 20}
providers: {east: {memory: {cloud: none}}}
skus:
  gpu:
    on: [{provider: east, size: g-small}]
    access: {forks: true}
"""

NONCE = "0" * 64


class LaunchingProvider(FakeProvider):
    """Prints a line for each machine. A machine proves its identity with its ID alone."""

    def __init__(self, name: ProviderName, context: ProviderContext) -> None:
        super().__init__(name, latency=0.0)
        self._installations = context.installations
        self.on_instance = self._launched

    async def verify(self, proof: bytes) -> ProvenIdentity:
        return ProvenIdentity(ProviderMachineId(proof.decode()))

    def _launched(self, instance: Instance) -> None:
        instance.installation = self._installations.own
        sys.stdout.write(json.dumps({"event": "instance_launched", "id": instance.id}) + "\n")


class LaunchingFactory(MemoryFactory):
    """Creates such providers. A reload leaves the offerings as they are."""

    def make(self, context: ProviderContext) -> Any:
        made = LaunchingProvider(self._name, context)
        made.offered = dict(super().make(context)._offerings)
        return made

    def remake(self, context: ProviderContext) -> Callable[[Provider], Provider]:
        del context
        return lambda provider: provider


class LaunchingKind(MemoryKind):
    """The kind of these providers."""

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> LaunchingFactory:
        del folder
        return LaunchingFactory(name, settings)


@dataclass
class Fleet:
    """A controller, its GitHub, and the one machine that it launches."""

    folder: Path
    process: asyncio.subprocess.Process
    github: Client
    url: str
    machine: str = field(default="", init=False)

    async def boot(self) -> None:
        """Attest the machine that the controller launches, and make it ready."""
        await self.attest((await logged(self.process, "instance_launched"))["id"])
        await self.ask("health-checks", {"passed": True, "checks": []})

    async def attest(self, instance: str) -> dict[str, Any]:
        """Attest a machine, and return the parameters of its health checks."""
        body = {
            "protocol": 1,
            "provider": "east",
            "proof": base64.b64encode(instance.encode()).decode(),
            "nonce": NONCE,
            "agent": "1.0",
        }
        answer = await self._ask("/bootstrap/attest", body)
        self.machine = answer["machine"]
        return dict(answer["health_checks"])

    async def ask(self, step: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request of the machine, and return the answer."""
        return await self._ask(f"/bootstrap/machines/{self.machine}/{step}", body)

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {NONCE}"}
        while True:
            async with self.github.session.post(
                self.url + path, json=body, headers=headers
            ) as answer:
                # As an agent, the machine tries again until the controller knows its launch.
                if answer.status != 503:
                    assert answer.status in (200, 204), await answer.text()
                    return dict(await answer.json()) if answer.status == 200 else {}
            await asyncio.sleep(0.05)

    async def start_job(self, assigned: Mapping[str, Any]) -> int:
        """Take the assignment, listen as a runner, start a job, and return the job's number."""
        runner = StandIn(self.github, 0, assigned["jit_config"])
        await self.ask("acknowledge", {"runner": assigned["runner"]})
        assert await runner.send("connect") == 204
        number = await runner.take(5.0)
        assert number is not None
        assert await runner.send("started", job=number) == 204
        return number


@asynccontextmanager
async def served_fleet(parent: Path, text: str = FLEET, *queued: JobSpec) -> AsyncIterator[Fleet]:
    """Serve a fleet, with the webhooks of a GitHub that has its organization.

    `queued` are jobs that wait since before the controller's start.
    """
    folder, key = Folder(parent).path, make_key()
    app = LabApp(1, key.public, NAMED_FILES["secret"])
    organization = LabOrganization("acme", ("rocket",))
    github = LabGitHub([app], [organization], SystemClock(1.0, time.time()))
    await github.start()
    github.push(queued)
    try:
        (folder / "app.pem").write_bytes(key.private)
        (folder / "fleet.yaml").write_text(text.replace("GITHUB", github.api_url))
        async with (
            aiohttp.ClientSession() as session,
            serving(
                folder, f"{__name__}:LaunchingKind", environment={"no_proxy": "127.0.0.1"}
            ) as process,
        ):
            url = f"http://{(await logged(process, 'serving'))['on']}"
            if "webhook_secret_file" in text:
                github.point_webhook(f"{url}/webhook")
            yield Fleet(folder, process, Client(github, key, session), url)
    finally:
        await github.close()


@pytest.mark.systems
async def test_a_poll_that_waits_across_a_reload_gets_its_assignment(tmp_path: Path) -> None:
    warm = f"{FLEET}    idle: {{min: 1}}\n"
    async with served_fleet(tmp_path, warm) as fleet:
        await fleet.boot()
        poll = asyncio.create_task(fleet.ask("poll", {"wait": 50.0}))
        await fleet.ask("heartbeat", {})
        file = fleet.folder / "fleet.yaml"
        file.write_text(file.read_text().replace("machines: 20", "machines: 21"))
        fleet.process.send_signal(signal.SIGHUP)
        reloaded = await logged(fleet.process, "configuration_reloaded")
        assert reloaded["changed"] == ["limits.machines"]
        await fleet.ask("heartbeat", {})
        assert not poll.done()
        fleet.github.lab.push([job()])
        assert (await poll)["state"] == "assigned"


@pytest.mark.systems
async def test_without_webhooks_a_job_is_found_in_githubs_lists(tmp_path: Path) -> None:
    text = FLEET.replace("webhook_secret_file: secret", "webhook: none")
    async with served_fleet(tmp_path, text, job()) as fleet:
        await fleet.boot()
        assert (await fleet.ask("poll", {"wait": 50.0}))["state"] == "assigned"
        async with fleet.github.session.post(f"{fleet.url}/webhook", data=b"{}") as answer:
            assert answer.status == 404
        async with fleet.github.session.get(f"{fleet.url}/readyz") as answer:
            assert answer.status == 200
        async with fleet.github.session.get(f"{fleet.url}/metrics") as answer:
            assert "autoscaler_deliveries_total{" not in await answer.text()
    assert not any("deliveries" in route for route, _ in fleet.github.lab.calls)
    assert fleet.github.lab.calls["GET /app", 200]


@pytest.mark.systems
async def test_an_attestation_after_a_reload_gets_the_new_health_checks(tmp_path: Path) -> None:
    async with served_fleet(tmp_path, f"{FLEET}    idle: {{min: 1}}\n") as fleet:
        instance = (await logged(fleet.process, "instance_launched"))["id"]
        before = await fleet.attest(instance)
        file = fleet.folder / "fleet.yaml"
        gpu = "    disk_gb: 500\n    accelerator: {vendor: nvidia, count: 4}\n"
        file.write_text(file.read_text() + gpu)
        fleet.process.send_signal(signal.SIGHUP)
        await logged(fleet.process, "configuration_reloaded")
        after = await fleet.attest(instance)
    assert (before["disk_gb"], "accelerator" in before) == (1, False)
    assert (after["disk_gb"], after["accelerator"]) == (50, {"vendor": "nvidia", "count": 4})


@pytest.mark.systems
async def test_a_served_controller_exports_the_trace_of_a_job(
    tmp_path: Path, receiver: Receiver
) -> None:
    """The receiver's address is in the environment of the process."""
    async with served_fleet(tmp_path) as fleet:
        fleet.github.lab.push([job()])
        await fleet.boot()
        number = await fleet.start_job(await fleet.ask("poll", {"wait": 50.0}))
        started = await logged(fleet.process, "job_started")
        fleet.process.terminate()
        assert await fleet.process.wait() == 0
    spans = receiver.spans()
    (root,) = [span for span in spans if span.name == "job wait"]
    shown = values(root.attributes)
    assert shown["cicd.pipeline.task.run.id"] == str(number)
    assert shown["cicd.worker.id"] == started["machine"] == fleet.machine
    # GitHub's times are whole seconds, so that how many stages took time depends on the host.
    stages = [span for span in spans if span is not root]
    assert all(span.parent_span_id == root.span_id for span in stages)
    assert {span.trace_id for span in spans} == {root.trace_id}
