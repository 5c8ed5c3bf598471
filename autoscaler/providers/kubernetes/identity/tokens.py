"""Checks a pod's token with the API server's TokenReview.

A projected token names its pod and is valid as long as the pod exists, and ten seconds longer: the API server
remembers tokens that it accepted (apiserver, `tokenSuccessCacheTTL`). It checks a token's signature,
expiry and audience, and puts the pod's name and UID into the user's `extra` fields (Kubernetes
documentation, "Managing Service Accounts": bound tokens).
"""

import re
from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.provider import ProofRefusedError, ProvenIdentity
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity.ownership import PodIdentity, identity_of
from autoscaler.providers.kubernetes.settings import KubernetesSettings

MAX_TOKEN = 16 * 1024
"""Bytes of a token. A projected token has about 1,000."""

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
"""Since Kubernetes 1.30 (KEP-4193: ServiceAccountTokenPodNodeInfo). Before, a listing has it."""

_TOKEN = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


async def verify_token(
    api: ApiServer, settings: KubernetesSettings, proof: bytes
) -> ProvenIdentity:
    """Return the pod whose token this is.

    Raises ProofRefusedError; ProviderError or OutcomeUnknownError if the API server could not be asked.
    """
    if len(proof) > MAX_TOKEN or not _TOKEN.fullmatch(proof):
        raise ProofRefusedError("malformed", "not a JSON web token")
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": proof.decode(), "audiences": [settings.audience]},
    }
    answer = await api.request("POST", paths.TOKEN_REVIEWS, body=review)
    status = answer.get("status") or {}
    return ProvenIdentity(reviewed_pod(settings, status).machine, host=reviewed_node(status))


def reviewed_node(status: Mapping[str, Any]) -> str:
    """Return the name of the node in a TokenReview's status, or an empty text."""
    nodes = list(((status.get("user") or {}).get("extra") or {}).get(NODE_NAME) or [])
    return str(nodes[0]) if len(nodes) == 1 else ""


def reviewed_pod(settings: KubernetesSettings, status: Mapping[str, Any]) -> PodIdentity:
    """Return the pod in a TokenReview's status. Raises ProofRefusedError."""
    if not status.get("authenticated"):
        raise ProofRefusedError("signature", str(status.get("error") or "")[:200])
    # An API server that knows no audiences would accept a token for any of them, and then names none.
    if settings.audience not in (status.get("audiences") or ()):
        raise ProofRefusedError("account", "the token is for another audience")
    user = status.get("user") or {}
    prefix = f"system:serviceaccount:{settings.namespace}:"
    if user.get("username") not in {f"{prefix}{name}" for name in settings.service_accounts}:
        raise ProofRefusedError("account", "the token is of another service account")
    extra = user.get("extra") or {}
    names, uids = list(extra.get(POD_NAME) or []), list(extra.get(POD_UID) or [])
    if len(names) != 1 or len(uids) != 1:
        raise ProofRefusedError("account", "the token is bound to no pod")
    pod = PodIdentity(str(names[0]), str(uids[0]))
    if identity_of(pod.machine) != pod:
        raise ProofRefusedError("account", "the token's pod is none of this fleet")
    return pod
