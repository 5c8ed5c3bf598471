"""Starts a simulated GitHub and EC2, machines and a real controller on loopback, and connects them."""

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.app.agent_file import build_agent
from autoscaler.controller.system import SystemClock
from autoscaler.model.wording import counted
from lab.controller_process import ControllerProcess
from lab.ec2.lifecycle import RUNNER_TAG
from lab.ec2.moto import MotoProcess
from lab.ec2.seeding import Network
from lab.ec2.service import Account, LabEc2
from lab.fleet import (
    APP_ID,
    MOST_PROCESSES,
    SQLITE,
    VERSIONS_FILE,
    LabFleet,
    Surroundings,
    ec2_section,
    is_on_ec2,
)
from lab.github.server import LabGitHub
from lab.github.settings import (
    LabApp,
    LabGitHubOptions,
    LabOrganization,
    LabRunnerGroup,
)
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.lab_pods import PROVIDER, LabPods
from lab.machine_host import RUNNER_VERSION, MachineHost, RebootingHost
from lab.machines.crowd import CrowdHost
from lab.machines.misbehaving_host import MisbehavingHost, Misdeed
from lab.machines.observed_host import ObservedHost
from lab.machines.process import ProcessHost
from lab.machines.publisher import RunnerPublisher
from lab.replicas.controllers import Controllers, make_controllers
from lab.replicas.postgresql import PostgresqlServer
from lab.windows.host import WindowsHost
from lab.windows.parts import find
from lab.windows.platforms import PlatformHost

__all__ = ["APP_ID", "LabFleet", "Laboratory"]


OPERATOR_TOKENS = "admin-token"
"""The name of the file with the operator's token."""


class Laboratory:
    """A laboratory. Use it as an async context manager; `close` stops everything that it started.

    If `moto` is given, the laboratory shares it, in its own account, and leaves it running. It does the same
    with `cluster`, in its own namespace. `pods` is None without nodes. `machines` runs EC2's machines in place
    of the lab's own host; `close` closes it.
    """

    def __init__(
        self,
        fleet: LabFleet,
        moto: MotoProcess | None = None,
        report: Callable[[str], None] = lambda _: None,
        cluster: Cluster | None = None,
        machines: MachineHost | None = None,
    ) -> None:
        """`report` is called with the name of each part before it starts."""
        self.fleet = fleet
        self._moto = moto
        self._cluster = cluster
        self._report = report
        self.clock = SystemClock(fleet.scale, time.time())
        self.folder = Path(tempfile.mkdtemp(prefix="autoscaler-lab-"))
        self.github: LabGitHub
        self.ec2: LabEc2
        self.controllers: Controllers
        self.store = SQLITE
        self.pods: LabPods | None = None
        self.publisher: RunnerPublisher | None = None
        self.misdeeds: Mapping[str, Sequence[Misdeed]] = {}
        self._given = machines
        self._machines: MachineHost
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start GitHub and EC2 and write fleet.yaml. The caller starts the controller."""
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            # Machines run as an ordinary user, which must be able to enter its folder.
            self.folder.chmod(0o755)
            key = await asyncio.to_thread(rsa.generate_private_key, 65537, 2048)
            if self.fleet.has_stock_images:
                await self._publish_runner(stack)
            host = self._given or self._host()
            if self.fleet.listener is not None:
                host = ObservedHost(host, self.fleet.listener)
            stack.push_async_callback(host.close)
            self._machines = host
            account = Account() if self._moto is None else Account(_account_id())
            self.ec2 = LabEc2(host, self.clock, account=account, moto=self._moto)
            stack.push_async_callback(self.ec2.close)
            self._report("EC2 (moto, and a proxy that adds what moto lacks)")
            await self.ec2.start()
            network = await self.ec2.seed_network(3)
            if self.fleet.nodes:
                await self._start_pods(stack)
            secret = secrets.token_hex(20)
            self.github = self._github(key, secret)
            stack.push_async_callback(self.github.close)
            self._report("GitHub")
            await self.github.start()
            self._write_secrets(key, secret)
            self._add_images()
            if self.fleet.replicas > 1:
                await self._start_postgresql(stack)
            self.controllers = self._make_controllers(network)
            stack.push_async_callback(self.controllers.terminate)
            self._closing = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything, the controller first."""
        await self.close()

    async def close(self) -> None:
        """Stop everything. Idempotent."""
        await self._closing.aclose()

    async def start_controller(self) -> None:
        """Start the controllers, wait until they are ready, and point GitHub's webhook at them."""
        replicas = self.fleet.replicas
        what = "the controller" if replicas == 1 else f"{replicas} replicas of the controller"
        self._report(f"{what} (autoscaler serve)")
        await self.controllers.start()
        self.github.point_webhook(f"{self.controllers.url}/webhook")

    @property
    def controller(self) -> ControllerProcess:
        """The first controller, and the only one without replicas."""
        return self.controllers.processes[0]

    @property
    def operator_token(self) -> str:
        """The token with which an operator uses the commands, and signs in to the console."""
        return (self.folder / OPERATOR_TOKENS).read_text().split()[-1]

    async def hang(self, instance_id: str) -> None:
        """Kill all processes of a machine, while EC2 still shows it as running."""
        await self._machines.kill(instance_id)

    def left(self) -> list[str]:
        """Describe each machine, volume, pod and registration that still exists."""
        found = [
            f"machine {one.id} ({one.tags.get('autoscaler:sku', '?')}, {one.state})"
            for one in self.ec2.machines_left()
        ]
        found += [f"volume {volume}" for volume in self.ec2.volumes.left()]
        found += [
            f"pod {one.name} ({one.sku}, {one.phase})"
            for one in (self.pods.left() if self.pods is not None else ())
        ]
        found += [f"registration {runner.name}" for runner in self.github.runners]
        return found

    def wrong_jobs(self) -> list[str]:
        """Describe each job that did not run exactly once."""
        return [
            f"job {job.spec.name} ({job.status}) was started {counted(len(job.starts), 'time')}"
            for job in self.github.jobs
            if not job.cancelled and (len(job.starts) != 1 or job.conclusion != "success")
        ]

    async def _start_pods(self, stack: AsyncExitStack) -> None:
        folder = self.folder / "kubernetes"
        folder.mkdir(mode=0o755)
        (folder / "containers").mkdir(mode=0o755)
        pods = LabPods(folder, self.clock, self.fleet.nodes, self._cluster)
        stack.push_async_callback(pods.close)
        self._report(
            "Kubernetes (API server, scheduler, controllers, and kubelets that the lab plays)"
        )
        await pods.start()
        self.pods = pods

    async def _publish_runner(self, stack: AsyncExitStack) -> None:
        self.publisher = RunnerPublisher(self.folder)
        stack.push_async_callback(self.publisher.close)
        await self.publisher.start()
        file = self.folder / VERSIONS_FILE
        file.write_text(yaml.safe_dump(self.publisher.versions()), encoding="utf-8")

    def _host(self) -> MachineHost:
        if self.fleet.most_machines > MOST_PROCESSES:
            return CrowdHost(self.fleet.scale)
        folder = self.folder / "machines"
        folder.mkdir(mode=0o755)
        scale = self.fleet.machine_scale or self.fleet.scale
        host: RebootingHost = ProcessHost(
            folder, build_agent(), scale, environment=self._machine_environment()
        )
        if self.fleet.wine:
            host = PlatformHost(host, self._windows_host())
        if not self.fleet.misbehaving:
            return host
        misbehaving = MisbehavingHost(host, self.fleet.misbehaving, self.clock)
        self.misdeeds = misbehaving.misdeeds
        return misbehaving

    def _machine_environment(self) -> dict[str, str]:
        if self.publisher is None:
            return {}
        return {"SSL_CERT_FILE": str(self.publisher.certificate)}

    def _windows_host(self) -> WindowsHost:
        folder = self.folder / "windows"
        folder.mkdir(mode=0o755)
        return WindowsHost(folder, build_agent(), find(), self.fleet.scale)

    def _github(self, key: rsa.RSAPrivateKey, secret: str) -> LabGitHub:
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        fleet = self.fleet
        group = LabRunnerGroup("gpu", fleet.group_repositories, bool(fleet.public))
        return LabGitHub(
            [LabApp(APP_ID, public, secret)],
            [LabOrganization(fleet.organization, fleet.repositories, (group,), fleet.public)],
            self.clock,
            LabGitHubOptions(
                scale=fleet.scale,
                limits=fleet.limits,
                latency=fleet.github_latency,
                patience=fleet.github_patience,
                faults=fleet.faults,
                lose_jobs=fleet.lose_jobs,
                pick="arbitrary" if fleet.pick == "arbitrary" else "fifo",
                seed=fleet.seed,
            ),
        )

    def _write_secrets(self, key: rsa.RSAPrivateKey, secret: str) -> None:
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        for name, content in (
            ("github-app.pem", pem),
            ("webhook-secret", secret.encode()),
            (OPERATOR_TOKENS, f"operator operate {secrets.token_hex(32)}\n".encode()),
            ("identity.pem", self.ec2.certificate_pem),
        ):
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    def _add_images(self) -> None:
        for sku, section in self.fleet.skus.items():
            if not is_on_ec2(section) or "image" in section:
                continue
            self.ec2.images.add(
                f"{sku}-1",
                platform=str(section.get("os", "linux")),
                architecture="arm64" if section.get("arch") == "arm64" else "x86_64",
                snapshot_gb=8,
                tags={RUNNER_TAG: self.fleet.runner_versions.get(sku, RUNNER_VERSION)},
            )

    async def _start_postgresql(self, stack: AsyncExitStack) -> None:
        server = PostgresqlServer(self.folder / "postgresql")
        stack.push_async_callback(asyncio.to_thread, server.close)
        self._report("PostgreSQL")
        await asyncio.to_thread(server.start)
        self.store = await asyncio.to_thread(server.database)

    def _make_controllers(self, network: Network) -> Controllers:
        providers = {"lab": ec2_section(self.ec2, network)}
        providers |= {} if self.pods is None else {PROVIDER: self.pods.section}
        around = Surroundings(self.github.api_url, self.ec2.endpoint_url, self.store, providers)
        return make_controllers(self.fleet, self.folder, self.clock, around)


def _account_id() -> str:
    """Return a random account id of twelve digits, like AWS's."""
    return str(10**11 + secrets.randbelow(9 * 10**11))
