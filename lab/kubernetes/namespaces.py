"""Sets up a namespace for runner pods as an operator does: Pod Security, the shipped rights, an account."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.kubernetes.admin import Administrator

RIGHTS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rbac"
"""The rights that an operator gives to the controller."""

ACCOUNT = "gpu-runner-autoscaler"
_FILES = ("pods", "tokens", "capacity")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_PATIENCE = 600.0
"""Seconds to wait until rights are in force: it only keeps a broken cluster from hanging."""

_PAUSE = 0.05
"""Seconds between two looks at whether they are."""


async def make_namespace(admin: Administrator, name: str) -> str:
    """Create a namespace with the shipped rights, and return a token of the controller's account.

    The namespace enforces Pod Security `restricted`.
    """
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await admin.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    await admin.create(accounts, {"metadata": {"name": ACCOUNT}})
    rights = [body for file in _FILES for body in _objects(RIGHTS / f"{file}.yaml", name)]
    for body in rights:
        await admin.create(_collection(body, name), body)
    await rights_in_force(admin, name, ACCOUNT, rights)
    await admin.until(f"{accounts}/default", lambda _: True)
    answer = await admin.create(
        f"{accounts}/{ACCOUNT}/token", {"spec": {"expirationSeconds": 3600}}
    )
    return str(answer["status"]["token"])


async def rights_in_force(
    admin: Administrator, namespace: str, account: str, objects: Iterable[Mapping[str, Any]]
) -> None:
    """Return once an account of a namespace has the rights of these roles, which are bound to it.

    The API server's authorizer reads roles and bindings from caches, which follow a moment later
    (`rbacAuthorizer` in pkg/kubeapiserver/authorizer/config.go). Raises TimeoutError.
    """
    user = f"system:serviceaccount:{namespace}:{account}"
    rules = [
        (body["metadata"].get("namespace", ""), rule)
        for body in objects
        for rule in body.get("rules") or ()
    ]
    async with asyncio.timeout(_PATIENCE):
        for place, rule in rules:
            group, resource, verb = (rule[key][0] for key in ("apiGroups", "resources", "verbs"))
            while not await may(admin, user, verb, place, group, resource):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_PAUSE)


async def may(
    admin: Administrator, user: str, verb: str, namespace: str, group: str, resource: str
) -> bool:
    """Return whether a user has a right in a namespace, or in all of them if it is empty.

    `resource` may have a subresource, as in `pods/log`.
    """
    name, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "namespace": namespace,
        "group": group,
        "resource": name,
        "subresource": subresource,
    }
    spec = {"user": user, "resourceAttributes": attributes}
    return bool((await admin.create(_REVIEWS, {"spec": spec}))["status"]["allowed"])


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
