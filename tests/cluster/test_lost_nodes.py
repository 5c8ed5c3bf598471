"""A node is lost: its kubelet is silent, and only Kubernetes' controllers act.

No program of Kubernetes 1.36 writes the reason `NodeLost` (nothing calls `DeletePods` in
pkg/controller/util/node/controller_utils.go). The condition DisruptionTarget has the reason instead.
"""

from dataclasses import replace

import pytest

from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from lab.kubernetes.admin import accepts_pods
from lab.kubernetes.servers import KUBELET
from tests.cluster.conftest import GPU, SKU, Place, names_of, until
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOLERATION = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,
}
"""By default, it is 300 seconds (the admission plugin DefaultTolerationSeconds)."""


async def add_silent_node(place: Place) -> str:
    """Add a node without a kubelet. The test reports its condition."""
    node = f"{place.name}-silent"
    labels = {"pool": place.name, KUBELET: "processes"}
    await place.admin.add_node(node, {GPU: "8"}, labels)
    await report(place, node, "True")
    await place.admin.until(f"/api/v1/nodes/{node}", accepts_pods)
    await place.admin.scheduler_knows(node)
    return node


async def report(place: Place, node: str, status: str) -> None:
    """Write the condition Ready of a node, as its kubelet does, or the controllers after its silence."""
    ready = {"type": "Ready", "status": status, "reason": "Test"}
    path = f"/api/v1/nodes/{node}/status"
    await place.admin.patch(path, {"status": {"conditions": [ready]}})


async def bound(place: Place, provider: KubernetesProvider) -> ProviderMachineId:
    """Launch a pod, and wait until it has a node."""
    text = await provider.prepare(place.make_order(1, "lost"))
    [machine] = (await provider.launch(text)).launched
    await place.admin.until(place.path(names_of(text)[0]), lambda pod: pod["spec"].get("nodeName"))
    return machine.provider_id


@pytest.mark.case(
    "a kubelet is silent: Kubernetes deletes the pods of its node, which stay until an operator says that "
    "the node is out of service",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
async def test_the_pod_of_a_silent_node_leaves_and_is_gone_when_the_node_is_out_of_service(
    place: Place,
) -> None:
    overlay = {"spec": {"tolerations": [TOLERATION]}}
    option = with_changes(place.settings.options[(SKU, 0)], overlay=overlay)
    settings = replace(place.settings, options={(SKU, 0): option})
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    # If all nodes are silent, Kubernetes takes this for its own fault, and deletes nothing.
    other = await place.add_node()
    await place.admin.patch(f"/api/v1/nodes/{other}", {"spec": {"unschedulable": True}})
    node = await add_silent_node(place)
    machine = await bound(place, provider)

    async def shown() -> ListedMachine:
        return (await listed(provider))[machine]

    async def leaves() -> bool:
        return (await shown()).leaving

    await report(place, node, "Unknown")
    await until(leaves)
    found = await shown()
    assert (found.terminated, found.failure) == (False, FailureClass.CAPACITY)
    assert found.scope is FailureScope.MACHINE
    assert found.reason.startswith("DeletionByTaintManager: ")
    assert found.reason.endswith(f"node {node} has not confirmed its end yet")

    async def gone() -> bool:
        return machine not in await listed(provider)

    path = f"/api/v1/nodes/{node}"
    taints = (await place.admin.request("GET", path))["spec"]["taints"]
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "lost", "effect": "NoExecute"}
    await place.admin.patch(path, {"spec": {"taints": [*taints, taint]}})
    await until(gone)
    await place.admin.request("DELETE", path)
    await provider.close()
