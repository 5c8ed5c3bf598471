"""Gives the jobs of a pod a /dev/shm of a useful size. Pure.

That of a container runtime has 64 MiB. NCCL between the GPUs of a pod, and the workers of PyTorch's DataLoader,
fail with it (pytorch/ci-infra#490, pytorch/pytorch#16979). So the runner gets a volume in memory there.

Its files count against the memory limit of the container that wrote them (Kubernetes documentation, "Volumes":
emptyDir). The size is therefore a part of the pod's memory, as on a machine: the default is half of it, as
Linux has it (tmpfs(5), `size`). Kubelet makes the file system no larger than `sizeLimit` and the pod's memory
limit (`calculateEmptyDirMemorySize` in pkg/volume/emptydir/empty_dir.go). A job that fills it gets "no space
left on device", and is not evicted.

With `dind`, the containers of jobs get theirs from the Docker daemon (`dockerd --default-shm-size`, in bytes),
and its files count against the daemon's memory limit.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoscaler.providers.kubernetes.manifest.container_modes import DIND, SIZE_OF_DOCKER
from autoscaler.providers.kubernetes.manifest.fields import elements, mapping, plain_path
from autoscaler.providers.kubernetes.settings import RUNNER, PodOption
from autoscaler.providers.kubernetes.values.quantities import bytes_of, quantity

VOLUME = "shared-memory"
FOLDER = "/dev/shm"  # noqa: S108 - the shared memory of POSIX, shm_overview(7)

_UNITS = ((2**30, "Gi"), (2**20, "Mi"))


class TooLarge(NamedTuple):
    """A /dev/shm that is larger than the memory limit of the container that it counts against.

    `volume` is the runner's volume there, or None for the containers of the Docker daemon.
    """

    container: str
    volume: str | None
    size: str
    memory: str


def bytes_of_docker(option: PodOption) -> int | None:
    """Return the size in the containers of the Docker daemon, or None for Docker's default.

    A daemon without a memory limit may use as much as its node has: then the runner's limit counts.
    """
    own = option.dind.resources if option.dind is not None else {}
    return bytes_of(option.shared_memory, own.get("memory", option.resources.get("memory")))


def memory_volume(shared_memory: str | None, memory: object) -> dict[str, Any]:
    """Return the volume for a configured size, or for a container with this memory limit."""
    size = bytes_of(shared_memory, memory)
    source = {"medium": "Memory"} | ({} if size is None else {"sizeLimit": _written(size)})
    return {"name": VOLUME, "emptyDir": source}


def add_shared_memory(spec: Mapping[str, Any], shared_memory: str | None) -> None:
    """Give the runner of a pod a /dev/shm, unless an overlay mounted something there.

    `shared_memory` is the configured size, as a quantity (None: half of the memory limit).
    """
    runner = _runner(spec)
    if any(_mounts(runner)):
        return
    mount = {"name": VOLUME, "mountPath": FOLDER}
    runner["volumeMounts"] = [*elements(runner, "volumeMounts"), mount]
    if all(one.get("name") != VOLUME for one in spec["volumes"]):
        spec["volumes"].append(memory_volume(shared_memory, _memory(spec, runner)))


def too_large(pod: Mapping[str, Any]) -> Iterator[TooLarge]:
    """Yield the sizes in a finished pod that are more than the memory which they count against."""
    spec = pod["spec"]
    runner, volumes = _runner(spec), {one.get("name"): one for one in elements(spec, "volumes")}
    for mount in _mounts(runner):
        source = mapping(volumes.get(mount.get("name"), {}), "emptyDir")
        limit, memory = source.get("sizeLimit"), _memory(spec, runner)
        if source.get("medium") == "Memory" and _exceeds(limit, memory):
            yield TooLarge(RUNNER, str(mount.get("name")), str(limit), str(memory))
    for one in elements(spec, "initContainers"):
        for word in one.get("args") or () if one.get("name") == DIND else ():
            size, memory = str(word).removeprefix(SIZE_OF_DOCKER), _memory(spec, one)
            if size.isdecimal() and _exceeds(size, memory):
                yield TooLarge(DIND, None, _written(int(size)), str(memory))


def _runner(spec: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [one for one in spec["containers"] if one["name"] == RUNNER]
    return found


def _mounts(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the mounts at /dev/shm."""
    for mount in elements(container, "volumeMounts"):
        if str(plain_path(str(mount.get("mountPath")))) == FOLDER:
            yield mount


def _memory(spec: Mapping[str, Any], container: Mapping[str, Any]) -> object:
    """Return a container's memory limit, or that of the whole pod (`spec.resources`, Kubernetes 1.34)."""
    for one in (container, spec):
        limit: object = mapping(mapping(one, "resources"), "limits").get("memory")
        if limit is not None:
            return limit
    return None


def _exceeds(size: object, memory: object) -> bool:
    with contextlib.suppress(ValueError):
        return 0 < quantity(memory) < quantity(size)
    return False


def _written(size: int) -> str:
    for unit, suffix in _UNITS:
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
