"""The rights in deploy/kubernetes/rbac, and what the controllers' requests in the audit log go beyond.

The API server writes into each event which binding allowed the request (Kubernetes documentation, "Audit
Annotations"; `Authorize` in plugin/pkg/auth/authorizer/rbac/rbac.go).
"""

from collections.abc import Container, Iterable, Mapping
from functools import cache
from typing import Any

import yaml

from lab.kubernetes.cluster import Cluster
from lab.kubernetes.namespaces import ACCOUNT, RIGHTS

RELEASE = "second-fleet"
"""The Helm release of test_helm_install.py, and the service account of its controller.

Another name than that of the manifests, which other tests use in the same cluster.
"""

EVERY_USERS = frozenset(
    {("create", "selfsubjectaccessreviews.authorization.k8s.io"), ("get", "/openid/v1/jwks")}
)
"""What every service account may do: system:basic-user, system:service-account-issuer-discovery."""

Event = Mapping[str, Any]


@cache
def shipped() -> frozenset[tuple[str, str]]:
    """Every verb and resource of the shipped roles; those of a namespace begin with `+`."""
    found = set()
    for file in RIGHTS.glob("*.yaml"):
        for body in yaml.safe_load_all(file.read_text()):
            for rule in body.get("rules", ()):
                names = [
                    resource_name(group, resource, body["kind"] == "Role")
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                ]
                found |= {(verb, name) for verb in rule["verbs"] for name in names}
    return frozenset(found)


def resource_name(group: str, resource: str, namespaced: bool) -> str:
    """Such as `+pods/log` in a namespace, and `tokenreviews.authentication.k8s.io` in all of them."""
    return "+" * namespaced + resource + f".{group}" * bool(group)


def used(event: Event) -> tuple[str, str]:
    """The verb and the resource of a request, as `shipped` names them, or its path."""
    target = event.get("objectRef")
    if target is None:
        return event["verb"], event["requestURI"].partition("?")[0]
    parts = [target["resource"], *([target["subresource"]] if "subresource" in target else [])]
    name = resource_name(target.get("apiGroup", ""), "/".join(parts), "namespace" in target)
    return event["verb"], name


def assert_shipped_rights_suffice(cluster: Cluster, exempt: Container[str]) -> None:
    """Check all requests so far of the controllers at a cluster, but not those of the exempt users."""
    found = beyond_the_rights(cluster.all_audit_events(), exempt)
    assert not found, "\n".join(["not among the rights of deploy/kubernetes/rbac:", *sorted(found)])


def beyond_the_rights(events: Iterable[Event], exempt: Container[str] = ()) -> set[str]:
    """The controllers' requests that the shipped rights do not cover, without those of the exempt users."""
    found = set()
    for event in events:
        user = event["user"].get("username", "")
        if user.rpartition(":")[2] not in {ACCOUNT, RELEASE} or user in exempt:
            continue
        reason = event.get("annotations", {}).get("authorization.k8s.io/reason")
        if not (used(event) in EVERY_USERS or _is_covered(*used(event), reason)):
            found.add(f"{user}: {event['verb']} {event['requestURI']} ({reason or 'refused'})")
    return found


def _is_covered(verb: str, resource: str, reason: str | None) -> bool:
    """Whether a shipped role has this right, and is bound as it is shipped: in a namespace, or in all of them.

    `reason` is empty if the request was forbidden, and None if another limit refused it before (429).
    """
    if reason is None:
        return (verb, resource) in shipped()
    anywhere = reason.startswith("RBAC: allowed by ClusterRoleBinding ")
    name = resource.removeprefix("+") if anywhere else resource
    return bool(reason) and (verb, name) in shipped()
