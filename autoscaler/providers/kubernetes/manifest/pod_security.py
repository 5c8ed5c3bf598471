"""Finds what an overlay adds to a pod that Pod Security `restricted` forbids. Pure.

A namespace may enforce a weaker level, or none. A job would then get what the overlay gives to its pod, so the
provider checks the level itself.

The rules are those of Kubernetes 1.36 (k8s.io/pod-security-admission, package `policy`; Kubernetes
documentation, "Pod Security Standards"). One rule is stricter: since 1.35, `restricted` lets the containers of
a pod with `hostUsers: false` run as root. Here they may not, because an API server before 1.33 drops this field
(`UserNamespacesSupport` in pkg/features/kube_features.go), and the containers would be root on the node.

A container's field counts. The pod's field counts for containers that do not set it (Kubernetes documentation,
"Configure a Security Context for a Pod or Container").
"""

from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler.config.problems import show
from autoscaler.providers.kubernetes.manifest.fields import CONTAINER_LISTS, elements, mapping

_LEVEL = "Pod Security restricted"
_CONFINED = ("RuntimeDefault", "Localhost")
_PROFILES = ("seccompProfile", "appArmorProfile")
_SELINUX_TYPES = (
    None,
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
)
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_ADDABLE = "NET_BIND_SERVICE"
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")


def pod_security_problems(generated: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `restricted` forbids in the merged pod: the key, the reason, and what to write instead.

    A container that is privileged in the generated pod (the Docker daemon) may stay so. Then only its user and
    its ports on the host are checked: `privileged` turns off the other constraints (Kubernetes documentation,
    "Linux kernel security constraints for Pods and containers").
    """
    spec = pod["spec"]
    yield from _annotation_problems(pod["metadata"])
    yield from _volume_problems(spec)
    of_pod = mapping(spec, "securityContext")
    yield from _user_problems(of_pod, "spec.securityContext")
    yield from _profile_problems(of_pod, "spec.securityContext")
    yield from _sysctl_problems(of_pod)
    for kind in CONTAINER_LISTS:
        privileged = {
            one["name"]
            for one in elements(generated["spec"], kind)
            if mapping(one, "securityContext").get("privileged")
        }
        for container in elements(spec, kind):
            path = f"spec.{kind}[{container.get('name')}]"
            context, key = mapping(container, "securityContext"), f"{path}.securityContext"
            yield from _user_problems(context, key)
            yield from _missing(("runAsNonRoot", "true"), context, of_pod, key)
            if container.get("name") not in privileged:
                yield from _profile_problems(context, key)
                yield from _missing(
                    ("seccompProfile", "{type: RuntimeDefault}"), context, of_pod, key
                )
                yield from _container_problems(context, key)
            yield from _host_problems(container, path)


def _missing(
    wanted: tuple[str, str], context: Mapping[str, Any], of_pod: Mapping[str, Any], key: str
) -> Iterator[str]:
    """Yield a field that neither the container nor its pod sets. `wanted`: the field, and a value to write."""
    field, value = wanted
    if context.get(field) is None and of_pod.get(field) is None:
        yield f"{key}.{field}: {_LEVEL} requires it; write {value} here or in spec.securityContext"


def _annotation_problems(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield AppArmor profiles in the annotations that had them before Kubernetes 1.30."""
    for key, value in mapping(metadata, "annotations").items():
        allowed = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if str(key).startswith(_APPARMOR_ANNOTATION) and not allowed:
            yield f"metadata.annotations.{key}: {_LEVEL} forbids {show(value)}; remove the annotation"


def _volume_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in elements(spec, "volumes"):
        kinds = {str(one) for one, value in volume.items() if value is not None}
        for kind in sorted(kinds - _VOLUMES - {"name"}):
            key = f"spec.volumes[{volume.get('name')}].{kind}"
            yield f"{key}: {_LEVEL} forbids this type of volume; use a persistentVolumeClaim"


def _user_problems(context: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield what lets containers run as root, or as processes of a Windows host."""
    if context.get("runAsNonRoot") not in (None, True):
        yield f"{key}.runAsNonRoot: {_LEVEL} requires true; remove the key from the overlay"
    if context.get("runAsUser") == 0:
        yield f"{key}.runAsUser: {_LEVEL} forbids 0 (root); write the number of another user"
    if mapping(context, "windowsOptions").get("hostProcess"):
        yield f"{key}.windowsOptions.hostProcess: {_LEVEL} forbids it; remove the key from the overlay"


def _profile_problems(context: Mapping[str, Any], key: str) -> Iterator[str]:
    for field in _PROFILES:
        kind = mapping(context, field).get("type")
        if context.get(field) is not None and kind not in _CONFINED:
            yield f"{key}.{field}.type: {_LEVEL} forbids {show(kind)}; write one of {', '.join(_CONFINED)}"
    options = mapping(context, "seLinuxOptions")
    if options.get("type") not in _SELINUX_TYPES:
        yield f"{key}.seLinuxOptions.type: {_LEVEL} forbids {show(options['type'])}; write container_t"
    for field in ("user", "role"):
        if options.get(field):
            yield f"{key}.seLinuxOptions.{field}: {_LEVEL} forbids it; remove the key from the overlay"


def _sysctl_problems(context: Mapping[str, Any]) -> Iterator[str]:
    for one in elements(context, "sysctls"):
        if str(one.get("name")) not in _SYSCTLS:
            key = f"spec.securityContext.sysctls[{one.get('name')}]"
            yield f"{key}: {_LEVEL} forbids this sysctl; set it on the nodes"


def _container_problems(context: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield what only a container's own field can set."""
    if context.get("privileged"):
        yield f"{key}.privileged: {_LEVEL} forbids it; remove the key from the overlay"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{key}.allowPrivilegeEscalation: {_LEVEL} requires false; write false"
    if context.get("procMount") not in (None, "Default"):
        yield f"{key}.procMount: {_LEVEL} forbids {show(context['procMount'])}; write Default"
    capabilities = mapping(context, "capabilities")
    dropped, added = capabilities.get("drop"), capabilities.get("add")
    if not isinstance(dropped, list) or "ALL" not in dropped:
        yield f"{key}.capabilities.drop: {_LEVEL} requires ALL; write [ALL]"
    for one in added if isinstance(added, list) else ():
        if one != _ADDABLE:
            yield f"{key}.capabilities.add: {_LEVEL} forbids {show(one)}; write {_ADDABLE} or nothing"


def _host_problems(container: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield ports of the node, and probes and hooks that call another host."""
    for port in elements(container, "ports"):
        if port.get("hostPort"):
            key = f"{path}.ports[{port.get('containerPort')}].hostPort"
            yield f"{key}: {_LEVEL} forbids it; remove the key from the overlay"
    lifecycle = mapping(container, "lifecycle")
    handlers = {
        **{one: mapping(container, one) for one in _PROBES},
        **{f"lifecycle.{one}": mapping(lifecycle, one) for one in _HOOKS},
    }
    for name, handler in handlers.items():
        for action in ("httpGet", "tcpSocket"):
            if mapping(handler, action).get("host"):
                key = f"{path}.{name}.{action}.host"
                yield f"{key}: {_LEVEL} forbids it; remove the key: kubelet then calls the pod itself"
