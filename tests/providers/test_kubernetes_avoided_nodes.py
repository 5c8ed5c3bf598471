"""Pods of a launch request keep off the nodes on which pods of their SKU failed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.providers.kubernetes.capacity.accelerators import admits
from autoscaler.providers.kubernetes.launching import launch_text
from autoscaler.providers.kubernetes.manifest.avoided_nodes import HOSTNAME
from tests.providers.kubernetes_pods import OPTION, SKU, make_order, make_settings, with_changes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = ("node-1", "node-2")
OTHERS = {"key": HOSTNAME, "operator": "NotIn", "values": list(NODES)}
PREFERENCE = {"weight": 100, "preference": {"matchExpressions": [OTHERS]}}
RACK = {"key": "rack", "operator": "In", "values": ["a"]}


def affinity(
    nodes: tuple[str, ...] = NODES,
    *,
    work: bool = False,
    provisioner: bool = True,
    own: dict[str, Any] | None = None,
) -> Any:
    """Return the affinity of the pods of a launch request."""
    option = with_changes(OPTION, overlay={"spec": {"affinity": own}} if own else {})
    settings = make_settings(options={(SKU, 0): option}, provisioner=provisioner)
    order = replace(make_order(), avoided_hosts=nodes, others_work=work)
    return json.loads(launch_text(settings, order))["pod"]["spec"].get("affinity")


@pytest.mark.case(
    "Karpenter ignores a pod that requires another `kubernetes.io/hostname`, so that no node would be added",
    topic="Kubernetes",
    source="kubernetes-sigs/karpenter#3214",
)
@pytest.mark.parametrize(
    ("work", "provisioner", "strictly"),
    [(True, False, True), (False, False, False), (True, True, False), (False, True, False)],
)
def test_other_nodes_are_required_only_if_they_work_and_no_provisioner_adds_nodes(
    work: bool, provisioner: bool, strictly: bool
) -> None:
    found = affinity(work=work, provisioner=provisioner)["nodeAffinity"]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [OTHERS]}]}
    assert found == ({REQUIRED: terms} if strictly else {PREFERRED: [PREFERENCE]})
    assert "matchFields" not in json.dumps(found), "Karpenter supports none"
    assert affinity((), work=work, provisioner=provisioner) is None


def test_the_preference_stands_beside_those_of_the_overlay() -> None:
    mine = {"weight": 5, "preference": {"matchExpressions": [RACK]}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [RACK]}]}
    own = {
        "nodeAffinity": {PREFERRED: [mine], REQUIRED: required},
        "podAntiAffinity": {PREFERRED: []},
    }
    found = affinity(own=own)
    assert found == {
        **own,
        "nodeAffinity": {PREFERRED: [mine, PREFERENCE], REQUIRED: required},
    }
    assert affinity((), own=own) == own


def test_each_alternative_of_the_overlay_excludes_the_nodes() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    terms = [{"matchExpressions": [RACK]}, by_name, {}]
    own = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    found = affinity(work=True, provisioner=False, own=own)
    assert found["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [RACK, OTHERS]},
        {**by_name, "matchExpressions": [OTHERS]},
        {},
    ]
    for name, rack, admitted in (
        ("node-1", "a", False),
        ("node-3", "a", True),
        ("node-3", "b", False),
    ):
        labels = {HOSTNAME: name, "rack": rack}
        assert admits(found, {"metadata": {"name": name, "labels": labels}}) is admitted


def test_the_end_of_the_agents_log_is_in_the_pods_status() -> None:
    [runner] = json.loads(launch_text(make_settings(), make_order()))["pod"]["spec"]["containers"]
    assert runner["terminationMessagePolicy"] == "FallbackToLogsOnError"
