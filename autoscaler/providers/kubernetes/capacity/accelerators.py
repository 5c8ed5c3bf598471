"""Counts the accelerators of a cluster's nodes that a provider may use. Pure.

For clusters without a provisioner: a pod beyond this number fits on no node. The scheduler decides where
pods run. This count only keeps the planner from creating pods that would wait.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity.ownership import (
    FLEET,
    JOB_POD_END,
    QUOTA,
    RUNNER_POD,
    metadata_of,
    own_runner_pod,
)
from autoscaler.providers.kubernetes.listing.pods import pages
from autoscaler.providers.kubernetes.manifest.pod import node_selector, tolerations
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption
from autoscaler.providers.kubernetes.values.quantities import devices, units


class Usage:
    """The accelerators that pods on nodes use, counted in pieces.

    A cluster may have many times the pods of the fleet, so only the counts are kept.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self.all: Counter[tuple[str, str]] = Counter()
        """By node and resource."""
        self.own: Counter[tuple[str, str]] = Counter()
        """Those that the ledger counts against a quota, by quota and the node that has them."""

    def add(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Count these pods, of any namespace."""
        for pod in pods:
            node = pod.get("spec", {}).get("nodeName")
            if not node or pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                continue
            extended = _extended(pod["spec"])
            self.all.update({(node, resource): count for resource, count in extended.items()})
            quota = metadata_of(pod, "annotations").get(QUOTA)
            if quota and self._is_counted(pod):
                resource = quota.partition("{")[0]
                self.own[(f"{self._settings.name}/{quota}", node)] += extended[resource]

    def _is_counted(self, pod: Mapping[str, Any]) -> bool:
        """Return whether the ledger counts the pod's accelerators: it is a runner's pod, or that of its job.

        A step in a container of its own has a further pod, which the ledger does not know of.
        """
        metadata, labels = pod["metadata"], metadata_of(pod, "labels")
        # The fleet's other providers of the cluster have namespaces of their own.
        if metadata.get("namespace") != self._settings.namespace:
            return False
        of_job = metadata["name"].endswith(JOB_POD_END) and own_runner_pod(
            self._settings.fleet, labels.get(RUNNER_POD, "")
        )
        return of_job or labels.get(FLEET) == self._settings.fleet


def known_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a node that this module reads. A node also lists its images."""
    metadata, spec, status = (node.get(key) or {} for key in ("metadata", "spec", "status"))
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {key: status[key] for key in ("allocatable", "conditions") if key in status},
    }


def free_units(
    settings: KubernetesSettings,
    nodes: Sequence[Mapping[str, Any]],
    used: Usage,
) -> dict[str, int]:
    """Return the accelerators by `Offering.quota_key`, without those that others use.

    `used` has the pods of all namespaces. The ledger counts the provider's own pods of this quota, also those
    on a node that takes no more pods: their accelerators count here, too, so that they take nothing from the
    other nodes. Launch options with the same selector share a quota, although their architecture or tolerations
    may differ: a node that one of them fits counts. A pod gets its accelerators from one node, so of each node
    only a multiple of the smallest pod's accelerators counts. The scheduler refuses a larger pod that fits
    nowhere.
    """
    sharing: dict[str, list[PodOption]] = {}
    for option in settings.options.values():
        if option.accelerator is not None:
            sharing.setdefault(option.quota, []).append(option)
    found: dict[str, int] = {}
    for quota, options in sharing.items():
        key = f"{settings.name}/{quota}"
        fitting = [
            (node, [option for option in options if fitting_nodes(option, [node])])
            for node in nodes
        ]
        counted = {_name(node) for node, of_node in fitting if of_node}
        free = sum(_free(node, of_node, key, used) for node, of_node in fitting if of_node)
        found[key] = free + sum(
            count for (one, name), count in used.own.items() if one == key and name not in counted
        )
    return found


def _free(node: Mapping[str, Any], options: Sequence[PodOption], key: str, used: Usage) -> int:
    """Return the accelerators of a node that pods of these options can get."""
    [resource] = {one.accelerator.resource for one in options if one.accelerator is not None}
    smallest = min(one.accelerator.count for one in options if one.accelerator is not None)
    name = _name(node)
    others = used.all[(name, resource)] - used.own[(key, name)]
    allocatable = (node.get("status", {}).get("allocatable") or {}).get(resource)
    free = max(0, units(allocatable) - others)
    return free - free % smallest


def fitting_nodes(option: PodOption, nodes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the ready nodes on which the scheduler may put the option's pods.

    They match the node selector and the tolerations of the option and its overlay, and the overlay's required
    node affinity. Whether they have room is not asked.
    """
    return [node for node in nodes if _is_usable(node) and _fits(option, node)]


def _is_usable(node: Mapping[str, Any]) -> bool:
    if node.get("spec", {}).get("unschedulable"):
        return False
    conditions = node.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _fits(option: PodOption, node: Mapping[str, Any]) -> bool:
    labels, overlay = metadata_of(node, "labels"), option.overlay.get("spec") or {}
    selector = {**node_selector(option), **(overlay.get("nodeSelector") or {})}
    if any(value not in (labels.get(key), None) for key, value in selector.items()):
        return False
    if not admits(overlay.get("affinity"), node):
        return False
    accepted = [*tolerations(option), *(overlay.get("tolerations") or ())]
    return all(
        any(_tolerates(one, taint) for one in accepted)
        for taint in node.get("spec", {}).get("taints") or ()
        if taint.get("effect") != "PreferNoSchedule"
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration matches a taint (Kubernetes documentation, "Taints and Tolerations")."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return not key or key == taint.get("key")
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return key == taint.get("key") and same_value


def _extended(spec: Mapping[str, Any]) -> Counter[str]:
    """Return what the scheduler counts: all containers and sidecars together, or the largest init container.

    A sidecar runs beside the init containers after it (Kubernetes documentation, "Sidecar Containers").
    """
    sidecars: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        beside = sidecars + Counter(devices(container))
        largest |= beside
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    together = sidecars
    for container in spec.get("containers") or ():
        together += Counter(devices(container))
    return largest | together


def _name(node: Mapping[str, Any]) -> str:
    found: str = node["metadata"]["name"]
    return found


class Capacity(NamedTuple):
    """A cluster's nodes (`known_of`), and its free accelerators by `Offering.quota_key`."""

    nodes: list[dict[str, Any]]
    free: dict[str, int]


async def read_capacity(api: ApiServer, settings: KubernetesSettings) -> Capacity:
    """Return the capacity of the cluster. Needs the rights of deploy/kubernetes/rbac/capacity.yaml.

    Keeps one page of pods at a time: 30,000 pods would take more memory than the controller may have. Raises
    ProviderError, OutcomeUnknownError.
    """
    nodes = [known_of(one) async for page in pages(api, paths.NODES) for one in page.pods]
    used = Usage(settings)
    async for page in pages(api, paths.ALL_PODS):
        used.add(page.pods)
    return Capacity(nodes, free_units(settings, nodes, used))


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""A label's value (Kubernetes documentation, "Labels and Selectors": syntax)."""

_INTEGER = re.compile("[0-9]{1,63}")
"""What Go's `strconv.ParseInt(text, 10, 64)` reads in a label's value, which has no sign: only ASCII digits."""


def admits(affinity: object, node: Mapping[str, Any]) -> bool:
    """Return True if a node matches the required node affinity of a pod's `spec.affinity`, if there is one.

    Terms are alternatives. All expressions and fields of a term must match. A term that is empty, or that the
    scheduler cannot parse, matches no node; the other terms still count. Sources: k8s.io/component-helpers
    `scheduling/corev1/nodeaffinity/nodeaffinity.go`, and k8s.io/apimachinery `pkg/labels/selector.go`
    (`NewRequirement`, `Requirement.Matches`).

    Preferred terms never keep a pod from a node. What is malformed matches no node: the API server refuses it.
    """
    required = _child(_child(affinity, "nodeAffinity"), _REQUIRED)
    if required is None:
        return True
    terms = _child(required, "nodeSelectorTerms")
    return isinstance(terms, list) and any(_term_matches(term, node) for term in terms)


def _term_matches(term: object, node: Mapping[str, Any]) -> bool:
    expressions = _child(term, "matchExpressions") or []
    fields = _child(term, "matchFields") or []
    if not isinstance(expressions, list) or not isinstance(fields, list):
        return False
    if not expressions and not fields:
        return False
    labels, name = metadata_of(node, "labels"), node["metadata"]["name"]
    return all(_label_matches(one, labels) for one in expressions) and all(
        _field_matches(one, {"metadata.name": name}) for one in fields
    )


def _label_matches(expression: object, labels: Mapping[str, str]) -> bool:
    """Return whether labels match an expression. False if the scheduler cannot parse it."""
    key, values = _child(expression, "key"), _child(expression, "values") or []
    if not isinstance(key, str) or not isinstance(values, list):
        return False
    if not all(isinstance(one, str) and _VALUE.fullmatch(one) for one in values):
        return False
    has, value = key in labels, labels.get(key, "")
    match _child(expression, "operator"):
        case "In":
            return has and value in values
        case "NotIn":
            return bool(values) and not (has and value in values)
        case "Exists":
            return has and not values
        case "DoesNotExist":
            return not has and not values
        case "Gt" | "Lt" as operator if has and len(values) == 1:
            found, limit = _integer(value), _integer(values[0])
            if found is None or limit is None:
                return False
            return found > limit if operator == "Gt" else found < limit
    return False


def _field_matches(expression: object, fields: Mapping[str, str]) -> bool:
    """Return whether a node's fields match an expression, which has exactly one value."""
    values = _child(expression, "values")
    if not isinstance(values, list) or len(values) != 1:
        return False
    same = fields.get(str(_child(expression, "key")), "") == values[0]
    operator = _child(expression, "operator")
    return same if operator == "In" else operator == "NotIn" and not same


def _integer(text: str) -> int | None:
    """Return a 64-bit integer, or None if the text is none."""
    if not _INTEGER.fullmatch(text):
        return None
    found = int(text)
    return found if found < 2**63 else None


def _child(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None
