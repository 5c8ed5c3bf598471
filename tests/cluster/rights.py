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
    {
        ("create", "selfsubjectaccessreviews.authorization.k8s.io"),
        ("get", "/openid/v1/jwks"),
        ("get", "/readyz"),
    }
)
"""What every service account may do: system:basic-user, system:service-account-issuer-discovery, and
system:public-info-viewer."""

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
    sent = [
        one
        for one in events
        if one["user"].get("username", "").rpartition(":")[2] in {ACCOUNT, RELEASE}
        and one["user"]["username"] not in exempt
    ]
    bound = {_place(one) for one in sent if _reason(one).startswith(_BY_ROLE)}
    return {
        f"{one['user']['username']}: {one['verb']} {one['requestURI']} ({_reason(one) or 'refused'})"
        for one in sent
        if used(one) not in EVERY_USERS and not _is_covered(one, bound)
    }


_BY_ROLE = "RBAC: allowed by RoleBinding "
_BY_CLUSTER_ROLE = "RBAC: allowed by ClusterRoleBinding "


def _is_covered(event: Event, bound: Container[tuple[str, str]]) -> bool:
    """Whether a shipped role has the right for a request. `bound`: the users and namespaces with a Role.

    An API server that just started refuses also what a role allows, because it has not read the roles yet.
    """
    verb, resource = used(event)
    if _reason(event).startswith(_BY_CLUSTER_ROLE):
        return (verb, resource.removeprefix("+")) in shipped()
    in_place = not resource.startswith("+") or _place(event) in bound
    return in_place and (verb, resource) in shipped()


def _reason(event: Event) -> str:
    """Why a request was allowed. Empty if it was refused, also by a limit before (429)."""
    return str(event.get("annotations", {}).get("authorization.k8s.io/reason", ""))


def _place(event: Event) -> tuple[str, str]:
    return event["user"]["username"], event.get("objectRef", {}).get("namespace", "")
