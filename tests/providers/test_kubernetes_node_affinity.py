"""Which nodes a pod's required node affinity admits."""

from typing import Any

import pytest

from autoscaler.providers.kubernetes.capacity.accelerators import admits
from tests.providers.node_affinities import LABELS, cases, label, required

NODE = {"metadata": {"name": "gpu-7", "labels": dict(LABELS)}}


@pytest.mark.parametrize(("affinity", "admitted"), cases("gpu-7"))
def test_a_node_is_admitted_as_by_the_scheduler(affinity: dict[str, Any], admitted: bool) -> None:
    assert admits(affinity, NODE) is admitted


def test_without_an_affinity_every_node_is_admitted() -> None:
    assert admits(None, NODE)
    assert admits(label("rack", "DoesNotExist"), {"metadata": {"name": "bare"}})


@pytest.mark.parametrize(
    "affinity",
    [
        required("rack"),  # type: ignore[arg-type]
        required({"matchExpressions": "rack"}),
        required({"matchExpressions": ["rack"]}),
        required({"matchExpressions": [{"key": 7, "operator": "Exists"}]}),
        required({"matchExpressions": [{"key": "size", "operator": "In", "values": [8]}]}),
        required({"matchExpressions": [{"key": "size", "operator": "In", "values": "8"}]}),
        required({"matchFields": {"key": "metadata.name"}}),
        required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": "gpu-7"}]}),
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["rack"]}},
    ],
)
def test_a_malformed_affinity_admits_no_node(affinity: dict[str, Any]) -> None:
    assert not admits(affinity, NODE)
