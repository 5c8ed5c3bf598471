"""The paths of the API server that the provider uses, and the names of its requests. Pure.

deploy/kubernetes/ grants exactly these verbs and resources. Every user may send access reviews about itself
and ask whether the API server is ready, and every service account may read the cluster's public keys
(Kubernetes documentation, "Using RBAC Authorization": system:basic-user, system:public-info-viewer,
system:service-account-issuer-discovery).
"""

from urllib.parse import quote

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SIGNING_KEYS = "/openid/v1/jwks"
READINESS = "/readyz"
NODES = "/api/v1/nodes"
ALL_PODS = "/api/v1/pods"


def pods(namespace: str) -> str:
    """Return the path of a namespace's pods."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def pod(namespace: str, name: str) -> str:
    """Return the path of one pod."""
    return f"{pods(namespace)}/{quote(name, safe='')}"


def log(namespace: str, name: str) -> str:
    """Return the path of a pod's logs."""
    return f"{pod(namespace, name)}/log"


_OPERATIONS = {
    ("POST", "tokenreviews"): "ReviewToken",
    ("POST", "selfsubjectaccessreviews"): "ReviewAccess",
    ("POST", "pods"): "CreatePod",
    ("GET", "pods"): "ListPods",
    ("GET", "nodes"): "ListNodes",
    ("GET", "pod"): "GetPod",
    ("DELETE", "pod"): "DeletePod",
    ("PATCH", "pod"): "PatchPod",
    ("GET", "log"): "GetLog",
    ("GET", "readyz"): "GetReadiness",
}


def operation(method: str, path: str) -> str:
    """Return the name of a request, for metrics."""
    words = path.split("/")
    kind = "pod" if words[-2] == "pods" else words[-1]
    return _OPERATIONS.get((method, kind), "other")
