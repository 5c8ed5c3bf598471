"""One real cluster for all tests here; a namespace with the shipped rights for each provider.

At last, no request of a controller may have needed other rights: see `rights.py`.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import (
    Accelerator,
    KubernetesSettings,
    PodOption,
)
from lab.kubernetes.admin import Administrator, accepts_pods
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.namespaces import make_namespace
from tests.cluster.rights import assert_shipped_rights_suffice
from tests.patience import PATIENCE
from tests.providers.contract import MakeOrder
from tests.providers.doubles import ManualClock, RememberingTelemetry

GPU = "nvidia.com/gpu"
SKU = SkuName("linux.gpu.1")

_numbers = itertools.count()


@pytest.fixture(scope="session")
def exempt() -> set[str]:
    """The users whose requests go beyond the shipped rights on purpose. Tests add those of their own places."""
    return set()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, exempt: set[str]) -> Iterator[Cluster]:
    """Yield the cluster. Raises ProgramMissingError, whose message has the command that builds the programs."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), PATIENCE)
    try:
        made.start()
        yield made
        assert_shipped_rights_suffice(made, exempt)
    finally:
        made.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def admin(cluster: Cluster) -> AsyncIterator[Administrator]:
    administrator = Administrator(cluster)
    yield administrator
    await administrator.close()


@dataclass(frozen=True)
class Place:
    """One namespace with its own fleet, its own nodes, and the shipped rights."""

    name: str
    """Of the namespace, the fleet, and the label `pool` of the nodes."""
    token: str
    """Of the controller's service account."""
    settings: KubernetesSettings
    cluster: Cluster
    admin: Administrator

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.name}:gpu-runner-autoscaler"

    async def add_node(self, gpus: int = 8, name: str = "") -> str:
        """Add a node, and wait until the scheduler may use it."""
        found = name or f"{self.name}-node-{next(_numbers)}"
        taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
        await self.admin.add_node(found, {GPU: str(gpus)}, {"pool": self.name}, [taint])
        await self.admin.until(f"/api/v1/nodes/{found}", accepts_pods)
        await self.admin.scheduler_knows(found)
        return found

    async def pods(self) -> dict[str, dict[str, Any]]:
        """All pods of the namespace, by name."""
        found = await self.admin.request("GET", f"/api/v1/namespaces/{self.name}/pods")
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    async def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.admin.request("GET", self.path(name))
        return found

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.name}/pods/{name}"

    async def set_status(self, name: str, status: dict[str, Any]) -> None:
        """Write a pod's status, as its kubelet would."""
        await self.admin.patch(f"{self.path(name)}/status", {"status": status})

    async def pod_token(
        self, name: str, audience: str, bound: bool = True, account: str = "default"
    ) -> bytes:
        """A token as kubelet gets it for a pod's projected volume."""
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
        if bound:
            uid = (await self.pod(name))["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
        path = f"/api/v1/namespaces/{self.name}/serviceaccounts/{account}/token"
        answer = await self.admin.create(path, {"spec": spec})
        return str(answer["status"]["token"]).encode()

    def make_order(self, count: int, request: str, sku: SkuName = SKU) -> LaunchOrder:
        return LaunchOrder(
            launch_request=LaunchRequestId(request),
            sku=sku,
            option=0,
            capacity_type=CapacityType.ON_DEMAND,
            offerings=(f"cluster/gpu-1/{self.name}/on-demand",),
            count=count,
            token=request,
        )


@pytest_asyncio.fixture(loop_scope="session")
async def place(cluster: Cluster, admin: Administrator) -> Place:
    return await new_place(cluster, admin)


async def new_place(cluster: Cluster, admin: Administrator) -> Place:
    """A new namespace that enforces Pod Security `restricted`, with the shipped rights."""
    name = f"runners-{next(_numbers)}"
    token = await make_namespace(admin, name)
    option = PodOption(
        sku=SKU,
        shape="gpu-1",
        image="registry.example/runner-cuda:12.8",
        resources={"cpu": "1", "memory": "1Gi", "ephemeral-storage": "10Gi"},
        accelerator=Accelerator(GPU, 1),
        node_selector={"pool": name},
        dollars_per_hour=1.25,
    )
    settings = KubernetesSettings(
        name=ProviderName("cluster"),
        fleet=name,
        installations=Installations(InstallationId("f00dface")),
        namespace=name,
        options={(SKU, 0): option},
        command=("agent",),
        context=name,
        kubeconfig=cluster.kubeconfig(name, token),
        timeout=PATIENCE,
    )
    return Place(name, token, settings, cluster, admin)


@pytest.fixture
def telemetry() -> RememberingTelemetry:
    return RememberingTelemetry()


@pytest_asyncio.fixture(loop_scope="session")
async def provider(
    place: Place, telemetry: RememberingTelemetry
) -> AsyncIterator[KubernetesProvider]:
    opened = KubernetesProvider(place.settings, telemetry, ManualClock())
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def make_order(place: Place) -> MakeOrder:
    def make(count: int, token: str) -> LaunchOrder:
        return replace(place.make_order(count, f"{token}-call"), token=token)

    return make


async def until(holds: Callable[[], Awaitable[bool]], pause: float = 0.05) -> None:
    """Return once this holds. `pause` is in seconds, between two looks."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await holds():
                return
            await asyncio.sleep(pause)


async def listening(provider: KubernetesProvider) -> None:
    """Return once the provider's watch has listed all pods."""

    async def listed_once() -> bool:
        return provider.notices._watch.lists > 0

    await provider.notices.receive(0.0)
    await until(listed_once)


def names_of(request: str) -> list[str]:
    """The names of a stored request's pods."""
    found: list[str] = json.loads(request)["names"]
    return found
