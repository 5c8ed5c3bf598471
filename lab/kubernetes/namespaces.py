"""Sets up a namespace for runner pods as an operator does: Pod Security, the shipped rights, an account."""

import re
from pathlib import Path
from typing import Any

import yaml

from lab.kubernetes.admin import Administrator

RIGHTS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rbac"
"""The rights that an operator gives to the controller."""

ACCOUNT = "gpu-runner-autoscaler"
_FILES = ("pods", "tokens", "capacity")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def make_namespace(admin: Administrator, name: str) -> str:
    """Create a namespace with the shipped rights, and return a token of the controller's account.

    The namespace enforces Pod Security `restricted`.
    """
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await admin.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    await admin.create(accounts, {"metadata": {"name": ACCOUNT}})
    for file in _FILES:
        for body in _objects(RIGHTS / f"{file}.yaml", name):
            await admin.create(_collection(body, name), body)
    await admin.until(f"{accounts}/default", lambda _: True)
    answer = await admin.create(
        f"{accounts}/{ACCOUNT}/token", {"spec": {"expirationSeconds": 3600}}
    )
    return str(answer["status"]["token"])


def _objects(file: Path, namespace: str) -> list[dict[str, Any]]:
    """Return the objects of a file in one namespace. Cluster-wide objects get a name of their own."""
    text = re.sub(r"namespace: [a-z-]+", f"namespace: {namespace}", file.read_text())
    found = list(yaml.safe_load_all(text))
    for body in found:
        if body["kind"].startswith("Cluster"):
            body["metadata"]["name"] += f"-{namespace}"
        if "roleRef" in body and body["roleRef"]["kind"] == "ClusterRole":
            body["roleRef"]["name"] += f"-{namespace}"
    return found


def _collection(body: dict[str, Any], namespace: str) -> str:
    kind = body["kind"].lower() + "s"
    if body["kind"].startswith("Cluster"):
        return f"{_RBAC}/{kind}"
    return f"{_RBAC}/namespaces/{namespace}/{kind}"
