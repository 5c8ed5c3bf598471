"""Overlays that Pod Security `restricted` forbids or allows, for tests without and with an API server."""

from typing import Any, NamedTuple

SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""The security context of a container of the autoscaler."""

OF_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


class Forbidden(NamedTuple):
    """The `spec` of an overlay, and the key that the message names."""

    key: str
    spec: dict[str, Any]


def runner(**changes: Any) -> dict[str, Any]:
    """An overlay for the runner's container."""
    return {"containers": [{"name": "runner", **changes}]}


def sidecar(**changes: Any) -> dict[str, Any]:
    """An overlay with a sidecar that passes, but for these changes."""
    own = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always", "securityContext": SAFE}
    return {"initContainers": [{**own, **changes}]}


def _of_pod(field: str, value: object, key: str = "") -> Forbidden:
    return Forbidden(f"spec.securityContext.{field}{key}: ", {"securityContext": {field: value}})


def _of_runner(field: str, value: object, key: str = "") -> Forbidden:
    context = {field: value}
    return Forbidden(
        f"spec.containers[runner].securityContext.{field}{key}: ", runner(securityContext=context)
    )


UNCONFINED = {"type": "Unconfined"}
FORBIDDEN = (
    _of_pod("runAsUser", 0),
    _of_pod("runAsNonRoot", False),
    _of_pod("seccompProfile", UNCONFINED, ".type"),
    _of_pod("appArmorProfile", UNCONFINED, ".type"),
    _of_pod("seLinuxOptions", {"type": "spc_t"}, ".type"),
    _of_pod("sysctls", [{"name": "kernel.msgmax", "value": "1"}], "[kernel.msgmax]"),
    _of_runner("runAsUser", 0),
    _of_runner("runAsNonRoot", False),
    _of_runner("allowPrivilegeEscalation", True),
    _of_runner("allowPrivilegeEscalation", None),
    _of_runner("capabilities", {"add": ["NET_ADMIN"]}, ".add"),
    _of_runner("capabilities", {"drop": ["NET_RAW"]}, ".drop"),
    _of_runner("capabilities", None, ".drop"),
    _of_runner("seccompProfile", UNCONFINED, ".type"),
    _of_runner("appArmorProfile", UNCONFINED, ".type"),
    _of_runner("seLinuxOptions", {"type": "spc_t"}, ".type"),
    _of_runner("seLinuxOptions", {"user": "system_u", "type": "spc_t"}, ".type"),
    _of_runner("seLinuxOptions", {"role": "system_r"}, ".role"),
    Forbidden(
        "spec.containers[runner].securityContext.privileged: ",
        runner(securityContext={"privileged": True, "allowPrivilegeEscalation": None}),
    ),
    Forbidden(
        "spec.containers[runner].securityContext.procMount: ",
        {"hostUsers": False, **runner(securityContext={"procMount": "Unmasked"})},
    ),
    Forbidden(
        "spec.containers[runner].securityContext.allowPrivilegeEscalation: ",
        runner(securityContext=None),
    ),
    Forbidden("spec.containers[runner].securityContext.runAsNonRoot: ", {"securityContext": None}),
    Forbidden(
        "spec.containers[runner].securityContext.seccompProfile: ",
        {"securityContext": {"seccompProfile": None}},
    ),
    Forbidden(
        "spec.initContainers[proxy].securityContext.allowPrivilegeEscalation: ",
        sidecar(securityContext=None),
    ),
    Forbidden(
        "spec.initContainers[proxy].securityContext.runAsUser: ",
        sidecar(securityContext={**SAFE, "runAsUser": 0}),
    ),
    Forbidden(
        "spec.initContainers[proxy].ports[80].hostPort: ",
        sidecar(ports=[{"containerPort": 80, "hostPort": 80}]),
    ),
    Forbidden(
        "spec.initContainers[proxy].readinessProbe.httpGet.host: ",
        sidecar(readinessProbe={"httpGet": {"port": 80, "host": "169.254.169.254"}}),
    ),
    Forbidden(
        "spec.initContainers[proxy].lifecycle.preStop.httpGet.host: ",
        sidecar(lifecycle={"preStop": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}),
    ),
    Forbidden(
        "spec.volumes[data].nfs: ",
        {"volumes": [{"name": "data", "nfs": {"server": "nfs.example", "path": "/"}}]},
    ),
    Forbidden(
        "spec.volumes[data].hostPath: ",
        {"volumes": [{"name": "data", "hostPath": {"path": "/"}}]},
    ),
)

APPARMOR = "container.apparmor.security.beta.kubernetes.io/runner"

ALLOWED: tuple[dict[str, Any], ...] = (
    {},
    {"securityContext": {"supplementalGroups": [992], "runAsUser": 1002, "fsGroup": 1002}},
    {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}]}},
    {"securityContext": {"seLinuxOptions": {"type": "container_engine_t", "level": "s0:c1,c2"}}},
    sidecar(),
    sidecar(securityContext={**SAFE, **OF_POD, "runAsUser": None, "procMount": None}),
    sidecar(ports=[{"containerPort": 80}], readinessProbe={"tcpSocket": {"port": 80}}),
    runner(
        securityContext={
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["NET_RAW", "ALL"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "runner.json"},
            "readOnlyRootFilesystem": True,
        }
    ),
    {
        "securityContext": None,
        "containers": [{"name": "runner", "securityContext": OF_POD}],
    },
    {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}, "hostPath": None},
            {"name": "model", "image": {"reference": "registry.example/model:1"}},
        ]
    },
)

STRICTER = (
    Forbidden(
        "spec.securityContext.runAsUser: ",
        {"hostUsers": False, "securityContext": {"runAsUser": 0}},
    ),
    Forbidden(
        "spec.containers[runner].securityContext.runAsNonRoot: ",
        {"hostUsers": False, **runner(securityContext={"runAsNonRoot": False})},
    ),
)
"""What `restricted` allows since Kubernetes 1.35, and the autoscaler does not."""
