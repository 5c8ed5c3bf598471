"""The real API server and scheduler, and the provider, agree on which nodes an affinity admits."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import SkuName
from autoscaler.providers.kubernetes.capacity.accelerators import fitting_nodes
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import SKU, Place, until
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes
from tests.providers.node_affinities import LABELS, cases

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_free_capacity_counts_the_nodes_that_the_scheduler_uses(place: Place) -> None:
    node = await place.add_node(gpus=100)
    path = f"/api/v1/nodes/{node}"
    await place.admin.patch(path, {"metadata": {"labels": dict(LABELS)}})
    affinities = cases(node)
    option = place.settings.options[(SKU, 0)]
    small = with_changes(option, resources={"cpu": "1m", "memory": "1Mi"})
    options = {
        (SkuName(f"sku-{number}"), 0): with_changes(small, overlay={"spec": {"affinity": affinity}})
        for number, (affinity, _) in enumerate(affinities)
    }
    settings = replace(place.settings, options=options)
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    waiting: dict[str, bool] = {}
    refused: list[tuple[str, bool]] = []
    try:
        for number, (_, admitted) in enumerate(affinities):
            order = place.make_order(1, f"affinity-{number:02}", SkuName(f"sku-{number}"))
            try:
                [machine] = (await provider.launch(await provider.prepare(order))).launched
            except ProviderError as error:
                refused.append((error.code, admitted))
            else:
                waiting[machine.provider_id.rpartition(".")[0]] = admitted
    finally:
        await provider.close()
    assert set(refused) == {("Invalid", False)}
    placed: dict[str, bool] = {}

    async def all_decided() -> bool:
        for name, pod in (await place.pods()).items():
            if _decided(pod):
                placed[name] = bool(pod["spec"].get("nodeName"))
        return len(placed) == len(waiting)

    await until(all_decided)
    assert placed == waiting
    shown = await place.admin.request("GET", path)
    for (_, admitted), found in zip(affinities, options.values(), strict=True):
        assert bool(fitting_nodes(found, [shown])) is admitted, found.overlay


def _decided(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" for one in conditions)
