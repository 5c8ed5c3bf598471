"""Pods avoid the nodes on which the hardware of a pod of their SKU failed its health checks."""

import json
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model.identifiers import SkuName
from autoscaler.providers.kubernetes.faulty_nodes import AVOIDED, MOST_NODES, FaultyNodes
from autoscaler.providers.kubernetes.notices import PodNotices
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.requests import launch_text
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import (
    CPU_SKU,
    OPTION,
    SKU,
    make_order,
    make_pod,
    make_settings,
)
from tests.providers.test_kubernetes_notices import RemovedPod, received

LOG = "runner-agent: attested\nrunner-agent: ending: the health checks failed: {}\n"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def failed_pod(
    failed: str = "gpu_errors", node: str = "node-1", container: str = "runner", status: int = 90
) -> dict[str, Any]:
    """Return a pod whose container ended with the agent's log line about these checks."""
    ended = {"exitCode": status, "reason": "Error", "message": LOG.format(failed)}
    containers = [{"name": container, "state": {"terminated": ended}}]
    pod = make_pod({"phase": "Failed", "containerStatuses": containers})
    pod["spec"] = {**pod["spec"], "nodeName": node}
    return pod


def avoided(text: str) -> list[str]:
    """Return the nodes that the pods of a launch request avoid."""
    affinity = json.loads(text)["pod"]["spec"].get("affinity", {})
    terms = affinity.get("nodeAffinity", {}).get(PREFERRED, [])
    return [
        field["values"][0] for term in terms for field in term["preference"].get("matchFields", [])
    ]


@pytest.mark.parametrize(
    ("pod", "remembered"),
    [
        (failed_pod("gpu_errors"), True),
        (failed_pod("gpu_model, gpu_kernel_log"), True),
        (failed_pod("gpu_query"), True),
        (failed_pod("gpu_driver"), True),
        (failed_pod("gpu_model, image"), False),
        (failed_pod("github"), False),
        (failed_pod(status=0), False),
        (failed_pod(status=1), False),
        (failed_pod(container="dind"), False),
        (failed_pod(node=""), False),
        (make_pod(), False),
        ({}, False),
    ],
)
def test_only_failed_checks_of_the_node_are_remembered(
    pod: dict[str, Any], remembered: bool
) -> None:
    nodes = FaultyNodes(ManualClock())
    nodes.note(pod)
    assert nodes.of(SKU) == (("node-1",) if remembered else ())


def test_the_last_line_of_the_log_counts() -> None:
    pod = failed_pod("gpu_errors")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    ended["message"] += LOG.format("disk")
    nodes = FaultyNodes(ManualClock())
    nodes.note(pod)
    assert nodes.of(SKU) == ()


def test_a_node_is_avoided_for_an_hour_by_its_own_sku() -> None:
    clock = ManualClock()
    nodes = FaultyNodes(clock)
    nodes.note(failed_pod())
    assert nodes.of(CPU_SKU) == ()
    clock.time += AVOIDED - 1
    nodes.note(failed_pod(node="node-0"))
    assert nodes.of(SKU) == ("node-0", "node-1")
    clock.time += 1
    assert nodes.of(SKU) == ("node-0",)


def test_the_nodes_that_failed_last_are_avoided() -> None:
    nodes = FaultyNodes(ManualClock())
    for number in (*range(MOST_NODES), 0, MOST_NODES):
        nodes.note(failed_pod(node=f"node-{number:02}"))
    found = nodes.of(SKU)
    assert len(found) == MOST_NODES
    assert "node-00" in found
    assert "node-01" not in found


def test_the_preference_stands_beside_those_of_the_overlay() -> None:
    labels = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    own = {"weight": 5, "preference": labels}
    required = {"nodeSelectorTerms": [labels]}
    node_affinity = {
        PREFERRED: [own],
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    affinity = {"nodeAffinity": node_affinity, "podAntiAffinity": {PREFERRED: []}}
    option = replace(OPTION, overlay={"spec": {"affinity": affinity}})
    settings = make_settings(options={(SKU, 0): option})
    text = launch_text(settings, make_order(), ["node-1", "node-2"])
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]}
        for node in ("node-1", "node-2")
    ]
    found = json.loads(text)["pod"]["spec"]["affinity"]
    assert found == {
        **affinity,
        "nodeAffinity": {
            **node_affinity,
            PREFERRED: [own, {"weight": 100, "preference": {"matchFields": fields}}],
        },
    }
    assert json.loads(launch_text(settings, make_order()))["pod"]["spec"]["affinity"] == affinity


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
@pytest.mark.asyncio
async def test_the_next_pods_avoid_the_node_that_the_watch_showed(kind: str) -> None:
    api = RemovedPod(failed_pod(), kind=kind)
    provider = KubernetesProvider(make_settings(), RememberingTelemetry(), ManualClock(), api)
    assert avoided(await provider.prepare(make_order())) == []
    assert isinstance(provider.notices, PodNotices)
    await received(provider.notices)
    assert avoided(await provider.prepare(make_order())) == ["node-1"]
    assert avoided(await provider.prepare(make_order(sku=CPU_SKU))) == []
    assert provider.notices.faulty_nodes.of(SkuName("other")) == ()
    await provider.close()


def test_the_end_of_the_agents_log_is_in_the_pods_status() -> None:
    pod = json.loads(launch_text(make_settings(), make_order()))["pod"]
    [runner] = pod["spec"]["containers"]
    assert runner["terminationMessagePolicy"] == "FallbackToLogsOnError"
