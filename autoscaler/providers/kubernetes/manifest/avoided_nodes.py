"""Keeps the pods of a launch request off the nodes on which pods of their SKU failed. Pure.

The label `kubernetes.io/hostname` names the node: it is the node's name in most clusters (Kubernetes
documentation, "Well-Known Labels, Annotations and Taints"). Karpenter ignores a pod whose required node
affinity has a `kubernetes.io/hostname` (kubernetes-sigs/karpenter#3214, open) or `matchFields`
(`validateNodeSelectorTerm` in its pkg/controllers/provisioning/provisioner.go). Before 1.5, it did so for
preferred terms, too (kubernetes-sigs/karpenter#2182).
"""

from collections.abc import Mapping, Sequence
from typing import Any

LEAST_KARPENTER = "1.5"
"""The first version of Karpenter that adds nodes for a pod which prefers other nodes."""

HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def avoiding(pod: dict[str, Any], nodes: Sequence[str], strictly: bool) -> dict[str, Any]:
    """Return the pod with a node affinity for other nodes than these, beside the one that it has.

    `strictly`: the pod waits rather than runs on one of them. Otherwise it prefers others, because a faulty
    node that is the only one with room is better than a SKU that stands still. 100 is the largest weight.
    """
    if not nodes:
        return pod
    others = {"key": HOSTNAME, "operator": "NotIn", "values": list(nodes)}
    affinity = pod["spec"].get("affinity") or {}
    of_node = dict(affinity.get("nodeAffinity") or {})
    if strictly:
        of_node[_REQUIRED] = _with(of_node.get(_REQUIRED), others)
    else:
        preference = {"weight": 100, "preference": {"matchExpressions": [others]}}
        of_node[_PREFERRED] = [*(of_node.get(_PREFERRED) or ()), preference]
    return {**pod, "spec": {**pod["spec"], "affinity": {**affinity, "nodeAffinity": of_node}}}


def _with(required: Mapping[str, Any] | None, expression: Mapping[str, Any]) -> dict[str, Any]:
    """Return a required node affinity with one more expression in each of its terms, which are alternatives.

    An empty term matches no node, and must not become one that does.
    """
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), expression]}
        if term.get("matchExpressions") or term.get("matchFields")
        else term
        for term in (required or {}).get("nodeSelectorTerms") or ()
    ]
    if required is None:
        terms = [{"matchExpressions": [expression]}]
    return {**(required or {}), "nodeSelectorTerms": terms}
