"""Lets the jobs of a pod run containers, in one of the two container modes that GitHub's ARC has. Pure.

`dind` adds a rootless Docker daemon as a sidecar (Kubernetes documentation, "Sidecar Containers": an
init container that restarts). Docker's documentation, "Rootless mode", needs it to be privileged: it creates
user namespaces and mounts, which a usual container may not. docker-library's `dockerd-entrypoint.sh` needs
entries for its user in /etc/subuid and /etc/subgid, and a HOME and an XDG_RUNTIME_DIR that it can write.

`kubernetes` gives the runner GitHub's hooks (actions/runner-container-hooks, packages/k8s/README.md),
which create a pod for each job's container. The image `ghcr.io/actions/actions-runner` has both versions
(actions/runner, images/Dockerfile): 0.7 shares the runner's work folder with that pod through a volume, 0.8
copies it.
"""

from collections.abc import Mapping
from typing import Any

from autoscaler.providers.kubernetes.configuration import Dind, KubernetesMode
from autoscaler.providers.kubernetes.settings import PodOption

DIND = "dind"
DIND_FILES = "dind-files"

RUNNER_HOME = "/home/runner"
"""The folder of the runner in GitHub's image."""

WORK_VOLUME = "work"
WORK_FOLDER = f"{RUNNER_HOME}/_work"

API_ACCESS_VOLUME = "api-access"
"""The token and the certificate authority with which the hooks use the API server."""

API_ACCESS_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
HOOKS = f"{RUNNER_HOME}/k8s/index.js"
HOOKS_WITHOUT_VOLUME = f"{RUNNER_HOME}/k8s-novolume/index.js"

TOKEN_SECONDS = 3600

SIZE_OF_DOCKER = "--default-shm-size="
"""The option of `dockerd` for the size of /dev/shm in its containers, in bytes (moby, `installConfigFlags`)."""

_EXTERNALS = f"{RUNNER_HOME}/externals"
_DATA_FOLDER = "/var/lib/dind"
# The daemon needs these lines for its user. A job's container gets Node.js from the runner's `externals`, which
# the daemon must find at the same path (actions/runner, ContainerOperationProvider).
_FILES = """\
set -eu
cp -r {externals}/. /dind/externals/
printf 'root:x:0:0:root:/root:/bin/sh\\nrunner:x:{user}:{user}:runner:{data}:/bin/sh\\n' > /dind/etc/passwd
printf 'root:x:0:\\nrunner:x:{user}:\\n' > /dind/etc/group
printf 'runner:100000:65536\\n' > /dind/etc/subuid
cp /dind/etc/subuid /dind/etc/subgid
"""


def add_container_mode(
    spec: dict[str, Any],
    option: PodOption,
    resources: Mapping[str, Any],
    shared_memory: int | None = None,
) -> None:
    """Add to a pod's spec what the container mode of its launch option needs, if it has one.

    `resources` are those of an init container without devices. `shared_memory` is the size of /dev/shm in
    Docker's containers, in bytes (None: Docker's default).
    """
    if option.dind is not None:
        _add_docker(spec, option.dind, option.image, resources, shared_memory)
    elif option.hooks is not None:
        _add_hooks(spec, option.hooks, option.image)


def _add_docker(
    spec: dict[str, Any],
    mode: Dind,
    image: str,
    resources: Mapping[str, Any],
    shared_memory: int | None,
) -> None:
    size = [] if shared_memory is None else [f"{SIZE_OF_DOCKER}{shared_memory}"]
    user = spec["securityContext"]["runAsUser"]
    socket_folder = f"/run/user/{user}"
    host = {"name": "DOCKER_HOST", "value": f"unix://{socket_folder}/docker.sock"}
    socket = {"name": "dind-socket", "mountPath": socket_folder}
    spec["initContainers"] += [
        _files(image, user, resources),
        _daemon(mode, user, [host], [socket], size),
    ]
    _add_to_runner(spec, [host], socket)
    volumes = ("dind-etc", "dind-externals", "dind-data", "dind-socket")
    spec["volumes"] += [{"name": name, "emptyDir": {}} for name in volumes]


def _files(image: str, user: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    script = _FILES.format(externals=_EXTERNALS, user=user, data=_DATA_FOLDER)
    return {
        "name": DIND_FILES,
        "image": image,
        "command": ["/bin/sh", "-c", script],
        "resources": dict(resources),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "dind-etc", "mountPath": "/dind/etc"},
            {"name": "dind-externals", "mountPath": "/dind/externals"},
        ],
    }


def _daemon(
    mode: Dind,
    user: int,
    env: list[dict[str, str]],
    mounts: list[dict[str, str]],
    words: list[str],
) -> dict[str, Any]:
    resources = dict(mode.resources)
    etc = [
        {"name": "dind-etc", "mountPath": f"/etc/{file}", "subPath": file, "readOnly": True}
        for file in ("passwd", "group", "subuid", "subgid")
    ]
    return {
        "name": DIND,
        "image": mode.image,
        "restartPolicy": "Always",
        # Without arguments, the image's entry point also listens on a TCP port.
        "args": ["dockerd", f"--host={env[0]['value']}", *words],
        "env": [
            *env,
            {"name": "HOME", "value": _DATA_FOLDER},
            {"name": "XDG_RUNTIME_DIR", "value": f"/run/user/{user}"},
        ],
        "resources": {"requests": resources, "limits": resources},
        # Without `runAsGroup`, a user that the image does not know has the group 0.
        "securityContext": {"privileged": True, "runAsUser": user, "runAsGroup": user},
        # The agent starts when the daemon answers: a machine that is ready can run containers.
        "startupProbe": {
            "exec": {"command": ["docker", "info"]},
            "periodSeconds": 2,
            "timeoutSeconds": 10,
            "failureThreshold": 90,
        },
        "volumeMounts": [
            *mounts,
            *etc,
            {"name": "dind-data", "mountPath": _DATA_FOLDER},
            {"name": "dind-externals", "mountPath": _EXTERNALS, "readOnly": True},
            {"name": WORK_VOLUME, "mountPath": WORK_FOLDER},
        ],
    }


def _add_hooks(spec: dict[str, Any], mode: KubernetesMode, image: str) -> None:
    hooks = HOOKS if mode.work_volume is not None else HOOKS_WITHOUT_VOLUME
    env: list[dict[str, Any]] = [
        {"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": hooks},
        {
            "name": "ACTIONS_RUNNER_POD_NAME",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
        },
        # A job without a container would have the rights of the hooks.
        {"name": "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER", "value": "true"},
        # From which the hooks of version 0.8 copy Node.js.
        {"name": "ACTIONS_RUNNER_IMAGE", "value": image},
    ]
    access = {"name": API_ACCESS_VOLUME, "mountPath": API_ACCESS_FOLDER, "readOnly": True}
    _add_to_runner(spec, env, access)
    spec["serviceAccountName"] = mode.service_account
    volumes = [_work(mode) if one["name"] == WORK_VOLUME else one for one in spec["volumes"]]
    spec["volumes"] = [*volumes, _api_access()]


def _work(mode: KubernetesMode) -> dict[str, Any]:
    """Return the work folder. The hooks expect the claim `POD-work`: that of an ephemeral volume `work`."""
    volume = mode.work_volume
    if volume is None:
        return {"name": WORK_VOLUME, "emptyDir": {}}
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class is not None:
        claim["storageClassName"] = volume.storage_class
    return {"name": WORK_VOLUME, "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def _api_access() -> dict[str, Any]:
    """Return the volume that Kubernetes would add to all containers: here, only the runner's mounts it."""
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    return {"name": API_ACCESS_VOLUME, "projected": {"sources": sources}}


def _add_to_runner(
    spec: Mapping[str, Any], env: list[dict[str, Any]], mount: dict[str, Any]
) -> None:
    [runner] = spec["containers"]
    runner["env"] = env
    runner["volumeMounts"].append(mount)
