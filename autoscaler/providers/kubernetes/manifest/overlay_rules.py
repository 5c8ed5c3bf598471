"""Finds what an overlay changes of a pod that the provider relies on. Pure.

See docs/kubernetes.md, "The overlay".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autoscaler.providers.kubernetes.identity.ownership import DO_NOT_DISRUPT, PREFIX
from autoscaler.providers.kubernetes.manifest.container_modes import DIND
from autoscaler.providers.kubernetes.manifest.fields import (
    CONTAINER_LISTS,
    elements,
    mapping,
    plain_path,
)
from autoscaler.providers.kubernetes.manifest.shared_memory import VOLUME
from autoscaler.providers.kubernetes.settings import RUNNER
from autoscaler.providers.kubernetes.values.image_references import FIX, is_image_reference

_METADATA = frozenset({"labels", "annotations"})
_OUR_VOLUMES = {
    "identity": "the pod's token",
    "agent": "the agent's files",
    "api-access": "the token of the container hooks",
}
"""Volumes that only the container `runner` may have."""
_OF_DIND = ("dind-etc", "dind-socket")
"""Volumes with the privileged daemon's users and its socket: a claim would share them with other pods."""
_CREDENTIALS = frozenset({"serviceAccountToken", "podCertificate"})
"""Sources of projected volumes that prove the pod's identity."""
_OF_THE_AGENT = ("RUNNER_AGENT_ROOT", "RUNNER_AGENT_ACCELERATORS")
"""With the first, the agent looks for its files elsewhere. With the second, it checks no accelerators."""
_PROBES = ("livenessProbe", "startupProbe")
"""They kill their container if they fail, and with it the job."""
_KEPT_OF_CONTAINERS = ("command", "args", "restartPolicy", "lifecycle", *_PROBES)
_KEPT_IF_GENERATED = ("terminationMessagePolicy",)
"""With it, the pod's status says which health checks failed (`statuses`)."""
_KEPT_OF_GENERATED = ("command", "lifecycle", "ports", "envFrom")
"""Fields with which the privileged daemon of `dind` could listen on the network, or run something else."""
_LISTENING = ("--host", "--config-file", "--metrics-addr")
"""Options of `dockerd` that name an address, or a file that may name one (docs.docker.com, "dockerd")."""
_OF_THE_DAEMON = ("DOCKER", "ROOTLESSKIT")
"""Beginnings of variables that the daemon's entry point reads: `DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS` publishes
its ports (moby, contrib/dockerd-rootless.sh)."""
_ACCELERATOR = re.compile(r"nvidia\.com/(gpu|mig-).*|amd\.com/(gpu|[a-z]px_).*")
"""Resources that are accelerators: the plugins of NVIDIA and AMD, whole or in parts (`amd.com/cpx_nps4`)."""
_KEPT_OF_SPEC = (
    "restartPolicy",
    "automountServiceAccountToken",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
)
_FORBIDDEN_IN_SPEC = (
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "nodeName",
    "activeDeadlineSeconds",
    "ephemeralContainers",
    "resourceClaims",
)
"""Fields that would give a job the host's namespaces or the processes of the agent, place its pod without the
scheduler, or end the job while it runs. Pod Security `baseline` forbids the first three, too.

A new pod cannot have ephemeral containers. Nothing would count the devices of resource claims."""


def rule_problems(
    pod: Mapping[str, Any], overlay: Mapping[str, Any], result: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what the overlay changes of the generated `pod`, and must not. `result` is the merged pod."""
    yield from _metadata_problems(
        pod["metadata"], overlay.get("metadata") or {}, result["metadata"]
    )
    spec = result["spec"]
    yield from _spec_problems(pod["spec"], spec)
    yield from _volume_problems(pod["spec"], spec)
    yield from _runner_problems(pod["spec"], spec)
    yield from _generated_problems(pod["spec"], spec)
    for kind in CONTAINER_LISTS:
        generated = {one["name"]: one for one in elements(pod["spec"], kind)}
        for container in elements(spec, kind):
            name = container.get("name")
            path, own = f"spec.{kind}[{name}]", generated.get(name)
            yield from _container_problems(path, own, container)
            yield from _mount_problems(path, spec, own, container)
            yield from _resource_problems(path, own or {}, container)
    if any(one["name"] == DIND for one in pod["spec"]["initContainers"]):
        yield from _host_problems(spec)


def _metadata_problems(
    own: Mapping[str, Any], overlay: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Iterator[str]:
    for key in sorted(set(overlay) - _METADATA):
        yield f"metadata.{key}: only labels and annotations can be added"
    for kind in sorted(_METADATA):
        found = metadata.get(kind)
        if not isinstance(found, Mapping):
            yield f"metadata.{kind}: must be a mapping"
            continue
        for key in sorted({*own[kind], *(one for one in found if str(one).startswith(PREFIX))}):
            if found.get(key) != own[kind].get(key):
                yield f"metadata.{kind}.{key}: the autoscaler relies on it"
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping) and annotations.get(DO_NOT_DISRUPT, "true") != "true":
        yield f"metadata.annotations.{DO_NOT_DISRUPT}: the autoscaler sets it when a job may run"


def _spec_problems(own: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    for key in _KEPT_OF_SPEC:
        if spec.get(key) != own[key]:
            yield f"spec.{key}: must stay {own[key]!r}"
    for key in _FORBIDDEN_IN_SPEC:
        if spec.get(key):
            yield f"spec.{key}: is not allowed"
    for key, value in own["nodeSelector"].items():
        if (spec.get("nodeSelector") or {}).get(key) != value:
            yield f"spec.nodeSelector.{key}: must stay {value!r}; change it in the SKU"


def _volume_problems(own: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    volumes = {one.get("name"): one for one in elements(spec, "volumes")}
    names = {*_OUR_VOLUMES, *_OF_DIND}
    kept = {one["name"]: one for one in elements(own, "volumes") if one["name"] in names}
    for name, volume in kept.items():
        if volumes.get(name) != volume:
            yield f"spec.volumes[{name}]: must stay as it is"
    for name, volume in volumes.items():
        sources = elements(mapping(volume, "projected"), "sources")
        if name not in kept and any(not _CREDENTIALS.isdisjoint(one) for one in sources):
            yield f"spec.volumes[{name}]: no container of a job may have the pod's token or certificate"


def _runner_problems(own: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    generated = next(one for one in own["containers"] if one["name"] == RUNNER)
    found = [one for one in elements(spec, "containers") if one.get("name") == RUNNER]
    path = f"spec.containers[{RUNNER}]"
    if len(found) != 1:
        yield f"{path}: must be there"
        return
    kept_if_generated = [one for one in _KEPT_IF_GENERATED if one in generated]
    yield from _kept_problems(path, generated, found[0], (*_KEPT_OF_CONTAINERS, *kept_if_generated))
    own_names = {variable["name"] for variable in elements(generated, "env")}
    names = {one.get("name") for one in elements(found[0], "env")} - own_names
    for name in _OF_THE_AGENT:
        if name in names:
            yield f"{path}.env[{name}]: is not allowed"
    limits = _limits(found[0])
    for resource, count in generated["resources"]["limits"].items():
        if "/" in resource and limits.get(resource) != count:
            yield f"{path}.resources.limits.{resource}: must stay {count}; change it in the SKU"


def _kept_problems(
    path: str, generated: Mapping[str, Any], container: Mapping[str, Any], keys: Iterable[str]
) -> Iterator[str]:
    """Yield the fields of these keys, and the generated variables, that the overlay changes."""
    for key in keys:
        if container.get(key) != generated.get(key):
            yield f"{path}.{key}: must stay as it is"
    variables = elements(container, "env")
    for variable in elements(generated, "env"):
        if variable not in variables:
            yield f"{path}.env[{variable['name']}]: must stay as it is"


def _generated_problems(own: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would change the generated init containers: the daemon of `dind`, and its files."""
    found = {one.get("name"): one for one in elements(spec, "initContainers")}
    for generated in elements(own, "initContainers"):
        container = found.get(generated["name"], {})
        path = f"spec.initContainers[{generated['name']}]"
        yield from _kept_problems(path, generated, container, _KEPT_OF_GENERATED)
        policy = generated.get("restartPolicy")
        if policy not in (None, container.get("restartPolicy")):
            # A sidecar that does not restart is an init container, and the agent would never start.
            yield f"{path}.restartPolicy: must stay {policy!r}"
        for probe in (*_PROBES, "readinessProbe"):
            if mapping(container, probe).get("exec") != mapping(generated, probe).get("exec"):
                yield f"{path}.{probe}.exec: must stay as it is"
        if not _is_closed(container.get("args"), generated.get("args")):
            yield f"{path}.args: must begin with dockerd and name no further address or file"
        for variable in elements(container, "env"):
            name = str(variable.get("name"))
            if variable not in elements(generated, "env") and name.startswith(_OF_THE_DAEMON):
                yield f"{path}.env[{name}]: is not allowed"


def _host_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would open a pod with the privileged daemon to its node, or make the daemon root there.

    No Pod Security level refuses it: the daemon needs a namespace with `privileged`, which forbids nothing.
    """
    for volume in elements(spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"spec.volumes[{volume.get('name')}].hostPath: is not allowed with {DIND}"
    for kind in CONTAINER_LISTS:
        for container in elements(spec, kind):
            path = f"spec.{kind}[{container.get('name')}]"
            for port in elements(container, "ports"):
                if port.get("hostPort"):
                    key = f"{path}.ports[{port.get('containerPort')}].hostPort"
                    yield f"{key}: is not allowed with {DIND}"
            context = {**mapping(spec, "securityContext"), **mapping(container, "securityContext")}
            for key, root in (("runAsUser", 0), ("runAsNonRoot", False)):
                if container.get("name") == DIND and context.get(key) == root:
                    yield f"{path}.securityContext.{key}: the daemon may not be root"


def _is_closed(args: object, generated: object) -> bool:
    """Return whether a daemon with these arguments listens on its socket alone.

    Without `dockerd` in front, the image's entry point adds a TCP port.
    """
    if args == generated:
        return True
    if not isinstance(args, list) or not isinstance(generated, list):
        return False
    words = [str(word) for word in args if word not in generated]
    return args[:1] == generated[:1] and not any(map(_names_an_address, words))


def _names_an_address(word: str) -> bool:
    """Return whether an argument of `dockerd` has an address. `-DH` is `-D` and `-H`."""
    short = word.startswith("-") and not word.startswith("--")
    return word.startswith(_LISTENING) or "tcp://" in word or (short and "H" in word)


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(container, "resources"), "limits")


def _container_problems(
    path: str, own: Mapping[str, Any] | None, container: Mapping[str, Any]
) -> Iterator[str]:
    if own is None and path.startswith("spec.containers"):
        yield (
            f"{path}: the pod would not end with its runner; "
            "put it under initContainers with restartPolicy: Always"
        )
    if "image" in container and not is_image_reference(container["image"]):
        yield f"{path}.image: {container['image']!r} is not an image reference: {FIX}"
    if container.get("restartPolicyRules"):
        # RestartAllContainers would end the job and run the machine again (KEP-5532, on since Kubernetes 1.36).
        yield f"{path}.restartPolicyRules: is not allowed, because a pod serves once"


def _mount_problems(
    path: str,
    spec: Mapping[str, Any],
    own: Mapping[str, Any] | None,
    container: Mapping[str, Any],
) -> Iterator[str]:
    """Yield mounts without a volume, and what removes, covers or repeats the mount of one of our volumes."""
    # /dev/shm is added after the overlay.
    names = {one.get("name") for one in elements(spec, "volumes")} | {VOLUME}
    is_runner = path == f"spec.containers[{RUNNER}]"
    kept = [
        one
        for one in elements(own or {}, "volumeMounts")
        if is_runner and one["name"] in _OUR_VOLUMES
    ]
    mounts = elements(container, "volumeMounts")
    for mount in kept:
        if mount not in mounts:
            yield f"{path}.volumeMounts[{mount['mountPath']}]: must stay as it is"
    for mount in mounts:
        name, where = str(mount.get("name")), f"{path}.volumeMounts[{mount.get('mountPath')}]"
        if mount.get("name") not in names:
            yield f"{where}: the pod has no volume {mount.get('name')!r}"
        if not is_runner and name in _OUR_VOLUMES:
            yield f"{where}: only {RUNNER} may have {_OUR_VOLUMES[name]}"
        for one in kept:
            folder = one["mountPath"]
            if mount != one and plain_path(str(mount.get("mountPath"))).is_relative_to(folder):
                yield f"{where}: must not cover {folder}"


def _resource_problems(
    path: str, own: Mapping[str, Any], container: Mapping[str, Any]
) -> Iterator[str]:
    """Yield accelerators that nothing would count, and devices of init containers that end.

    Kubelet, started again, allocates those devices anew, and kills the pod if a device is in use or its plugin
    has not registered yet: it spares only the containers that run (kubernetes/kubernetes#138446).
    """
    for resource in _limits(container):
        if _ACCELERATOR.fullmatch(resource) and resource not in _limits(own):
            key = f"{path}.resources.limits.{resource}"
            yield f"{key}: nothing would count it; write it as the SKU's accelerator"
    if path.startswith("spec.containers") or container.get("restartPolicy") == "Always":
        return
    resources = mapping(container, "resources")
    for kind in ("limits", "requests"):
        for resource in mapping(resources, kind):
            if "/" in str(resource):
                key = f"{path}.resources.{kind}.{resource}"
                yield f"{key}: a restart of kubelet would kill the pod; give it to {RUNNER} or a sidecar"
