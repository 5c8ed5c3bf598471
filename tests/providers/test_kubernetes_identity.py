"""Which answers of a TokenReview prove which pod."""

from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProofRefusedError
from autoscaler.providers.kubernetes.identity.ownership import PodIdentity, identity_of
from autoscaler.providers.kubernetes.identity.tokens import (
    NODE_NAME,
    POD_NAME,
    POD_UID,
    reviewed_node,
    reviewed_pod,
)
from tests.providers.kubernetes_pods import make_settings

UID = "4b3f0a1e-0000-4000-8000-000000000001"
AUDIENCE = "the token is for another audience"
ACCOUNT = "the token is of another service account"
UNBOUND = "the token is bound to no pod"


def status(**changes: Any) -> dict[str, Any]:
    """A status as the API server answers for a token of a pod, with changes to its user."""
    user = {
        "username": "system:serviceaccount:runners:default",
        "extra": {POD_NAME: ["ci-x-0"], POD_UID: [UID]},
    }
    return {
        "authenticated": True,
        "audiences": ["ci.gpu-runner-autoscaler"],
        "user": user | changes,
    }


def test_the_review_names_the_pod() -> None:
    found = reviewed_pod(make_settings(), status())
    assert found == PodIdentity("ci-x-0", UID)
    assert identity_of(found.machine) == found


@pytest.mark.parametrize(
    ("review", "reason", "detail"),
    [
        ({}, "signature", ""),
        ({"authenticated": False, "error": "expired"}, "signature", "expired"),
        ({"authenticated": False, "error": "x" * 300}, "signature", "x" * 200),
        (status() | {"audiences": ["other"]}, "account", AUDIENCE),
        (status() | {"audiences": None}, "account", AUDIENCE),
        (status(username="system:serviceaccount:runners:admin"), "account", ACCOUNT),
        (status(username="system:serviceaccount:other:default"), "account", ACCOUNT),
        (status(username="admin"), "account", ACCOUNT),
        (status(extra={}), "account", UNBOUND),
        (status(extra={POD_NAME: ["ci-x-0"]}), "account", UNBOUND),
        (status(extra={POD_NAME: ["a", "b"], POD_UID: [UID]}), "account", UNBOUND),
        (
            status(extra={POD_NAME: ["Not/a/name"], POD_UID: [UID]}),
            "account",
            "the token's pod is none of this fleet",
        ),
    ],
)
def test_anything_else_is_refused(review: dict[str, Any], reason: str, detail: str) -> None:
    with pytest.raises(ProofRefusedError) as refusal:
        reviewed_pod(make_settings(), review)
    assert refusal.value.reason == reason
    assert str(refusal.value) == (f"{reason}: {detail}" if detail else reason)


@pytest.mark.parametrize(
    ("nodes", "host"), [(["gpu-1"], "gpu-1"), ([], ""), (None, ""), (["a", "b"], "")]
)
def test_the_review_names_the_node_since_kubernetes_1_30(
    nodes: list[str] | None, host: str
) -> None:
    assert reviewed_node(status(extra={POD_NAME: ["ci-x-0"], NODE_NAME: nodes})) == host
    assert reviewed_node({}) == ""
