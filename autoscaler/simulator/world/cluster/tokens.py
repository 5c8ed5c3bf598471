"""Projected tokens of pods, and what a TokenReview says about them. Pure.

Source: Kubernetes documentation, "Managing Service Accounts": a token bound to a pod is invalid once the pod
is removed; the review names the pod and its UID in `extra`.
"""

import base64
from collections.abc import Iterable
from typing import Any

from autoscaler.simulator.world.cluster.registry import Object

_PREFIX = "authentication.kubernetes.io/"


def token_of(pod: Object) -> bytes:
    """Return the token in a pod's projected volume, in the form of a JSON web token."""
    uid = base64.urlsafe_b64encode(pod["metadata"]["uid"].encode()).rstrip(b"=")
    return b"header." + uid + b".signature"


def review(spec: Object, pods: Iterable[Object]) -> dict[str, Any]:
    """Return the status of a TokenReview."""
    pod = next((one for one in pods if token_of(one).decode() == spec["token"]), None)
    if pod is None:
        return {"authenticated": False, "error": "the token's pod does not exist"}
    audiences = [one for one in spec.get("audiences") or () if one in _audiences(pod)]
    if not audiences:
        return {"authenticated": False, "error": "the token is for another audience"}
    metadata = pod["metadata"]
    account = f"{metadata['namespace']}:{pod['spec'].get('serviceAccountName', 'default')}"
    extra = {f"{_PREFIX}pod-name": [metadata["name"]], f"{_PREFIX}pod-uid": [metadata["uid"]]}
    # A kubelet asks for the token, so the pod has a node.
    extra[f"{_PREFIX}node-name"] = [pod["spec"]["nodeName"]]
    user = {"username": f"system:serviceaccount:{account}", "extra": extra}
    return {"authenticated": True, "audiences": audiences, "user": user}


def _audiences(pod: Object) -> set[str]:
    return {
        source["serviceAccountToken"]["audience"]
        for volume in pod["spec"].get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
        if "serviceAccountToken" in source
    }
