"""Finds what an overlay changes of a pod that the provider relies on. Pure.

See docs/kubernetes.md, "The overlay".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autoscaler.providers.kubernetes.identity.ownership import DO_NOT_DISRUPT, PREFIX
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
        yield from _accelerator_problems(pod["spec"], spec, kind)
        for container in elements(spec, kind):
            yield from _container_problems(kind, container)
            yield from _missing_volume_problems(spec, kind, container)
    yield from _device_problems(spec)
    yield from _further_container_problems(pod["spec"], spec)


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
    kept = {one["name"]: one for one in elements(own, "volumes") if one["name"] in _OUR_VOLUMES}
    for name, volume in kept.items():
        if volumes.get(name) != volume:
            yield f"spec.volumes[{name}]: must stay as it is"
    for name, volume in volumes.items():
        if name not in kept and _has_credentials(volume):
            yield f"spec.volumes[{name}]: no container of a job may have the pod's token or certificate"


def _missing_volume_problems(
    spec: Mapping[str, Any], kind: str, container: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the mounts of volumes that the pod does not have. /dev/shm is added after the overlay."""
    names = {one.get("name") for one in elements(spec, "volumes")} | {VOLUME}
    for mount in elements(container, "volumeMounts"):
        if (name := mount.get("name")) not in names:
            path = f"spec.{kind}[{container.get('name')}].volumeMounts[{mount.get('mountPath')}]"
            yield f"{path}: the pod has no volume {name!r}"


def _has_credentials(volume: Mapping[str, Any]) -> bool:
    sources = elements(mapping(volume, "projected"), "sources")
    return any(not _CREDENTIALS.isdisjoint(one) for one in sources)


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
    yield from _mount_problems(generated, found[0], path)
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
        if mapping(generated, "securityContext").get("privileged"):
            yield from _root_problems(mapping(spec, "securityContext"), container, path)
            yield from _host_problems(spec)


def _root_problems(
    of_pod: Mapping[str, Any], container: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Yield what would make the privileged daemon root on its node."""
    context = {**of_pod, **mapping(container, "securityContext")}
    for key, root in (("runAsUser", 0), ("runAsNonRoot", False)):
        if context.get(key) == root:
            yield f"{path}.securityContext.{key}: the daemon may not be root"


def _host_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would open a pod with the privileged daemon to its node.

    No Pod Security level refuses it: the daemon needs a namespace with `privileged`, which forbids nothing.
    """
    for volume in elements(spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"spec.volumes[{volume.get('name')}].hostPath: is not allowed with dind"
    for kind in CONTAINER_LISTS:
        for container in elements(spec, kind):
            for port in elements(container, "ports"):
                if port.get("hostPort"):
                    path = (
                        f"spec.{kind}[{container.get('name')}].ports[{port.get('containerPort')}]"
                    )
                    yield f"{path}.hostPort: is not allowed with dind"


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


def _mount_problems(
    generated: Mapping[str, Any], container: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Yield what removes or covers the mount of a volume that the provider relies on."""
    mounts = elements(container, "volumeMounts")
    for mount in elements(generated, "volumeMounts"):
        if mount["name"] not in _OUR_VOLUMES:
            continue
        folder = mount["mountPath"]
        if mount not in mounts:
            yield f"{path}.volumeMounts[{folder}]: must stay as it is"
        for one in mounts:
            where = str(one.get("mountPath"))
            if one != mount and plain_path(where).is_relative_to(folder):
                yield f"{path}.volumeMounts[{where}]: must not cover {folder}"


def _accelerator_problems(
    own: Mapping[str, Any], spec: Mapping[str, Any], kind: str
) -> Iterator[str]:
    """Yield accelerators that the limits and the quotas of the SKU would not count."""
    counted = {one["name"]: _limits(one) for one in elements(own, kind)}
    for container in elements(spec, kind):
        name = container.get("name")
        for resource in _limits(container):
            if _ACCELERATOR.fullmatch(resource) and resource not in counted.get(str(name), {}):
                path = f"spec.{kind}[{name}].resources.limits.{resource}"
                yield f"{path}: nothing would count it; write it as the SKU's accelerator"


def _device_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield devices of init containers that end.

    Kubelet, started again, allocates them anew, and kills the pod if a device is in use or its plugin has not
    registered yet: it spares only the containers that run (kubernetes/kubernetes#138446).
    """
    for container in elements(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            continue
        resources = mapping(container, "resources")
        for kind in ("limits", "requests"):
            for resource in mapping(resources, kind):
                if "/" in str(resource):
                    path = (
                        f"spec.initContainers[{container.get('name')}].resources.{kind}.{resource}"
                    )
                    yield f"{path}: a restart of kubelet would kill the pod; give it to {RUNNER} or a sidecar"


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(container, "resources"), "limits")


def _further_container_problems(own: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the containers that would keep the pod running after its runner was killed."""
    names = {one["name"] for one in elements(own, "containers")}
    for container in elements(spec, "containers"):
        if container.get("name") not in names:
            yield (
                f"spec.containers[{container.get('name')}]: the pod would not end with its runner; "
                "put it under initContainers with restartPolicy: Always"
            )


def _container_problems(kind: str, container: Mapping[str, Any]) -> Iterator[str]:
    name = container.get("name")
    path = f"spec.{kind}[{name}]"
    if "image" in container and not is_image_reference(container["image"]):
        yield f"{path}.image: {container['image']!r} is not an image reference: {FIX}"
    if container.get("restartPolicyRules"):
        # RestartAllContainers would end the job and run the machine again (KEP-5532, on since Kubernetes 1.36).
        yield f"{path}.restartPolicyRules: is not allowed, because a pod serves once"
    if name == RUNNER and kind == "containers":
        return
    for mount in elements(container, "volumeMounts"):
        if (what := _OUR_VOLUMES.get(str(mount.get("name")))) is not None:
            where = f"{path}.volumeMounts[{mount.get('mountPath')}]"
            yield f"{where}: only {RUNNER} may have {what}"
