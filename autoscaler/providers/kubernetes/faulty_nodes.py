"""Nodes whose accelerators failed a pod's health checks: the next pods of its SKU prefer other nodes.

The agent's last log line names the failed checks. Kubelet copies the end of the log of a container that failed
into the pod's status (`terminationMessagePolicy: FallbackToLogsOnError`; Kubernetes documentation, "Determine
the Reason for Pod Failure"). So nothing has to be asked, and no right is needed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.failures import HARDWARE_CHECKS
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.providers.kubernetes import ownership
from autoscaler.providers.kubernetes.manifests import RUNNER
from autoscaler.providers.kubernetes.ownership import metadata_of

AVOIDED: Seconds = 3600.0
"""How long a node is avoided after a failure: the longest time for which a type in a zone of EC2 is."""

MOST_NODES = 20
"""Avoided nodes of one SKU, those that failed last. Each one makes the pods larger."""

OF_THE_NODE = HARDWARE_CHECKS | {"gpu_query", "gpu_driver"}
"""The checks that the node decides: also those of the driver, which a pod has from its node."""

_FAILED = re.compile(r"the health checks failed: ([a-z_, ]+)")
"""What the agent logs before it ends (`agent/lifecycle.py`)."""

CHECKS_FAILED_STATUS = 90
"""The agent's exit status after failed health checks (`agent/pod.py`). No job has run in such a container, so
no job has written its termination message."""


class FaultyNodes:
    """Remembers faulty nodes in memory. After a restart, a node is avoided once its next pod has failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[SkuName, dict[str, Instant]] = {}

    def note(self, pod: Mapping[str, Any]) -> None:
        """Remember the pod's node if one of its checks failed."""
        node = (pod.get("spec") or {}).get("nodeName")
        if not node or not node_failed(pod):
            return
        sku = SkuName(metadata_of(pod, "annotations").get(ownership.SKU, ""))
        nodes = self._until.setdefault(sku, {})
        nodes.pop(node, None)
        nodes[node] = self._clock.now() + AVOIDED
        if len(nodes) > MOST_NODES:
            del nodes[next(iter(nodes))]

    def of(self, sku: SkuName) -> tuple[str, ...]:
        """Return the nodes that pods of this SKU avoid now, sorted."""
        now = self._clock.now()
        return tuple(
            sorted(node for node, until in self._until.get(sku, {}).items() if until > now)
        )


def node_failed(pod: Mapping[str, Any]) -> bool:
    """Return whether the agent of this pod ended with a failed check of the node."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if one.get("name") == RUNNER and ended.get("exitCode") == CHECKS_FAILED_STATUS:
            found = _FAILED.findall(str(ended.get("message") or ""))
            return bool(found) and not OF_THE_NODE.isdisjoint(found[-1].strip().split(", "))
    return False


def avoiding(pod: dict[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Return the pod with a preference for other nodes than these, beside those that it has.

    A preference, because a faulty node that is the only one with room is better than a SKU that stands still.
    `matchFields` knows `metadata.name` alone, with one value (ValidateNodeFieldSelectorRequirement in
    k8s.io/kubernetes, pkg/apis/core/validation). 100 is the largest weight.
    """
    if not nodes:
        return pod
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    preference = {"weight": 100, "preference": {"matchFields": fields}}
    affinity = pod["spec"].get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    preferred = [*(of_node.get(_PREFERRED) or ()), preference]
    own = {**affinity, "nodeAffinity": {**of_node, _PREFERRED: preferred}}
    return {**pod, "spec": {**pod["spec"], "affinity": own}}


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
