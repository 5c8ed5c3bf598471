"""Measures how fast the Kubernetes provider creates pods, against the API server's own limit in the same run.

Run: `python -m benchmarks.pod_creation [--pods 1500] [--rounds 2]`. The limit is what a client reaches
that sends prepared bytes and does not parse the answers. No node takes the pods, so that no kubelet writes. The
CPU time is that of this process. The programs of `make programs` are needed.
"""

import argparse
import asyncio
import json
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.api.credentials import CONNECTIONS
from autoscaler.providers.kubernetes.manifest.pod import named_pod
from autoscaler.providers.kubernetes.provider import LARGEST_REQUEST, KubernetesProvider
from autoscaler.providers.kubernetes.settings import (
    Accelerator,
    KubernetesSettings,
    PodOption,
)
from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from tests.providers.doubles import ManualClock, RememberingTelemetry

SKU = SkuName("linux.gpu.1")
NAMESPACE = "runners"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Round:
    """How long one way took to create all pods: seconds of time, and of this process's CPU."""

    seconds: float
    cpu: float


async def timed(work: Callable[[], Awaitable[None]]) -> Round:
    """Return how long some work took."""
    began, used = time.perf_counter(), time.process_time()
    await work()
    return Round(time.perf_counter() - began, time.process_time() - used)


def make_settings(cluster: Cluster) -> KubernetesSettings:
    """Return the settings of a provider whose pods no node takes."""
    option = PodOption(
        sku=SKU,
        shape="gpu-1",
        image="registry.example/runner-cuda:12.8",
        resources={"cpu": "1", "memory": "1Gi", "ephemeral-storage": "10Gi"},
        accelerator=Accelerator("nvidia.com/gpu", 1),
        node_selector={"pool": "none"},
    )
    token = cluster.credentials.tokens["admin"]
    return KubernetesSettings(
        name=ProviderName("cluster"),
        fleet="ci",
        installations=Installations(InstallationId("f00dface")),
        namespace=NAMESPACE,
        options={(SKU, 0): option},
        command=("agent",),
        context="benchmark",
        kubeconfig=cluster.kubeconfig("benchmark", token),
    )


async def prepared(provider: KubernetesProvider, pods: int, prefix: str) -> list[str]:
    """Return the stored launch requests for so many pods."""
    sizes = [min(LARGEST_REQUEST, pods - first) for first in range(0, pods, LARGEST_REQUEST)]
    orders = [
        LaunchOrder(
            LaunchRequestId(f"{prefix}-{number}"),
            SKU,
            0,
            CapacityType.ON_DEMAND,
            (f"cluster/gpu-1/{NAMESPACE}/on-demand",),
            size,
            f"{prefix}-{number}",
        )
        for number, size in enumerate(sizes)
    ]
    return [await provider.prepare(order) for order in orders]


async def post_all(cluster: Cluster, requests: list[str]) -> Round:
    """Create the pods of these requests with prepared bytes."""
    bodies = []
    for text in requests:
        request = json.loads(text)
        for slot, name in enumerate(request["names"]):
            bodies.append(json.dumps(named_pod(request["pod"], name, slot)).encode())
    waiting = iter(bodies)
    headers = {
        "Authorization": f"Bearer {cluster.credentials.tokens['admin']}",
        "Content-Type": "application/json",
    }
    context = ssl.create_default_context(cafile=str(cluster.credentials.ca))
    connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
    url = f"{cluster.url}{PODS}?fieldValidation=Strict"
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def post() -> None:
            for body in waiting:
                async with session.post(url, data=body) as answer:
                    await answer.read()
                    answer.raise_for_status()

        async def post_together() -> None:
            await asyncio.gather(*(post() for _ in range(CONNECTIONS)))

        return await timed(post_together)


async def launch_all(provider: KubernetesProvider, requests: list[str]) -> Round:
    """Create the pods of these requests as the controller does."""

    async def launch() -> None:
        answers = await asyncio.gather(*map(provider.launch, requests))
        assert not any(answer.failures for answer in answers)

    return await timed(launch)


async def measure(pods: int, rounds: int) -> None:
    """Create pods in both ways, in turn, and print each round and the ratio. All pods stay."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            await asyncio.to_thread(cluster.start)
            admin = Administrator(cluster)
            await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            await admin.until(account, lambda _: True)
            provider = KubernetesProvider(
                make_settings(cluster), RememberingTelemetry(), ManualClock()
            )
            await provider.open()
            for number in range(rounds):
                bare = await post_all(cluster, await prepared(provider, pods, f"bare{number}"))
                report("API server's limit", pods, bare)
                own = await launch_all(provider, await prepared(provider, pods, f"own{number}"))
                report("provider", pods, own)
                print(f"{'ratio':20} {own.seconds / bare.seconds:6.2f}")
            await provider.close()
            await admin.close()
        finally:
            cluster.close()


def report(name: str, pods: int, found: Round) -> None:
    """Print one round."""
    print(
        f"{name:20} {found.seconds:6.2f} s  {pods / found.seconds:6.0f} pods/s"
        f"  {1000 * found.cpu / pods:5.2f} ms of CPU a pod",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.pods, arguments.rounds))
