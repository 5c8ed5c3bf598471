"""Runs the containers of pods as processes on this host.

A container is a root folder and a session of processes. A volume is a folder, and a link in each root that
mounts it. So a container finds only its own volumes below its root. Its command runs unchanged:
`RUNNER_AGENT_ROOT` is the prefix of the agent's paths, as on the lab's machines. The image is always the lab's
own: a few tools, and a stand-in for GitHub's runner in /home/runner.

If the lab runs as root, containers drop the privileges that affect the host, and the runner runs as `nobody`.
"""

import asyncio
import json
import os
import pwd
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.machine_host import FREE_GB
from lab.machines.gpus import install_amd, install_nvidia
from lab.machines.image import UNPRIVILEGED, Image, check_reachable, set_free_space
from lab.machines.process import without_privileges
from lab.machines.process_tree import end_sessions

RUNNER_DIRECTORY = "home/runner"


class Container:
    """One container. `first` is its first process. `over` is set once all of its processes have ended."""

    def __init__(self, root: Path, first: asyncio.subprocess.Process) -> None:
        self._root = root
        self._first = first
        self.out_of_memory = False
        self.over = asyncio.Event()

    async def ended(self) -> int:
        """Wait for the first process, end all others, and return the exit status as runtimes report it.

        The kernel ends a container's other processes with its first one (pid_namespaces(7)).
        """
        status = await self._first.wait()
        await asyncio.to_thread(end_sessions, self._sessions())
        self.over.set()
        return status if status >= 0 else 128 - status

    def terminate(self) -> None:
        """Send SIGTERM to the first process, if it handles that signal.

        The kernel gives a container's first process no signal that it does not handle
        (pid_namespaces(7)).
        """
        if self._first.returncode is None and _handles_sigterm(self._first.pid):
            self._first.send_signal(signal.SIGTERM)

    async def kill(self, *, out_of_memory: bool = False) -> None:
        """Send SIGKILL to all processes, as at the end of the grace period.

        `out_of_memory`: as the kernel does at the container's memory limit. With cgroups v2, kubelet has
        it kill all processes of the container (`memory.oom.group`).
        """
        self.out_of_memory = out_of_memory
        await asyncio.to_thread(end_sessions, self._sessions())

    def _sessions(self) -> list[int]:
        found = [self._first.pid]
        try:
            session = self._root / RUNNER_DIRECTORY / "session"
            found.append(int(session.read_text(encoding="ascii")[:10]))
        except (FileNotFoundError, ValueError):
            return found
        return found


class Runtime:
    """Starts containers, in a folder of its own. Raises ValueError for a folder that they cannot use.

    `scale` is lab seconds per real second. As root, the folder must be accessible to other users.
    """

    def __init__(self, folder: Path, scale: float) -> None:
        check_reachable(folder)
        # Pods fetch the agent from the controller.
        self._image = Image(folder / "image", b"", baked=False, scale=scale)
        self._pods = folder / "pods"
        self._pods.mkdir(mode=0o755)
        self._scale = scale
        self._containers: list[Container] = []
        self.broken_gpus = 0
        """The number of containers to come that do not find their accelerators."""
        self.free_gb = FREE_GB
        """The free GiB that containers to come find on the disk of their node."""

    async def close(self) -> None:
        """Kill all containers, and remove all files."""
        for container in self._containers:
            await container.kill()
            await container.ended()
        for folder in (self._pods, self._image.folder):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def folder_of(self, pod: Mapping[str, Any]) -> Path:
        """Return the folder of a pod."""
        return self._pods / str(pod["metadata"]["uid"])

    def make_volume(self, pod: Mapping[str, Any], name: str, files: Mapping[str, str]) -> None:
        """Create a volume with these files, by path."""
        folder = self.folder_of(pod) / "volumes" / name
        folder.mkdir(mode=0o755, parents=True)
        for path, content in files.items():
            (folder / path).touch(0o600)
            (folder / path).write_text(content, encoding="utf-8")
        if os.geteuid() == 0 and not files:
            account = pwd.getpwnam(UNPRIVILEGED)
            os.chown(folder, account.pw_uid, account.pw_gid)

    async def start(self, pod: Mapping[str, Any], spec: Mapping[str, Any]) -> Container:
        """Start a container of a pod. Raises OSError if its command does not exist."""
        folder = self.folder_of(pod)
        root = folder / "containers" / str(spec["name"])
        await asyncio.to_thread(self._make_root, root, folder / "volumes", spec)
        with self.log_file(pod, spec["name"]).open("ab") as log:
            first = await asyncio.create_subprocess_exec(
                *without_privileges(),
                *self._command(spec),
                cwd=root,
                env=self._environment(root, spec),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        container = Container(root, first)
        self._containers = [*(one for one in self._containers if not one.over.is_set()), container]
        return container

    def log_file(self, pod: Mapping[str, Any], container: str) -> Path:
        """Return the file with what a container has written. It exists once the container has started."""
        return self.folder_of(pod) / f"{container}.log"

    def log_of(self, pod: Mapping[str, Any], container: str) -> str:
        """Return what a container has written."""
        try:
            return self.log_file(pod, container).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def remove_containers(self, pod: Mapping[str, Any]) -> None:
        """Remove the files of a pod whose containers have ended, except their logs."""
        for folder in ("containers", "volumes"):
            shutil.rmtree(self.folder_of(pod) / folder, ignore_errors=True)

    def remove(self, pod: Mapping[str, Any]) -> None:
        """Remove the files of a pod that was deleted."""
        shutil.rmtree(self.folder_of(pod), ignore_errors=True)

    def _make_root(self, root: Path, volumes: Path, spec: Mapping[str, Any]) -> None:
        host_file = root / "etc" / "runner-agent" / "host.json"
        host_file.parent.mkdir(mode=0o755, parents=True)
        runner = root / RUNNER_DIRECTORY
        self._image.install_runner(runner)
        host_file.write_text(
            json.dumps(
                {
                    "root": str(root),
                    "time_scale": self._scale,
                    "runner_user": UNPRIVILEGED,
                    "runner_directory": str(runner),
                }
            )
        )
        host_file.chmod(0o644)
        set_free_space(root, self.free_gb)
        limits = (spec.get("resources") or {}).get("limits") or {}
        vendors = {resource: resource.partition(".com/")[0] for resource in limits}
        if self.broken_gpus > 0 and not {"nvidia", "amd"}.isdisjoint(vendors.values()):
            self.broken_gpus -= 1
            vendors = {}
        for resource, vendor in vendors.items():
            # A device plugin gives a container the devices that it requests, and no others.
            if vendor == "nvidia":
                install_nvidia(root, int(limits[resource]))
            elif vendor == "amd":
                install_amd(root, int(limits[resource]))
        for mount in spec.get("volumeMounts") or ():
            link = root / mount["mountPath"].lstrip("/")
            link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            link.symlink_to(volumes / mount["name"])

    def _command(self, spec: Mapping[str, Any]) -> list[str]:
        command = [*(spec.get("command") or ()), *(spec.get("args") or ())]
        program = shutil.which(command[0], path=str(self._image.bin)) if command else None
        if program is None:
            raise FileNotFoundError(f"container {spec['name']}: no such command")
        return [program, *command[1:]]

    def _environment(self, root: Path, spec: Mapping[str, Any]) -> dict[str, str]:
        own = {one["name"]: one["value"] for one in spec.get("env") or () if "value" in one}
        return {
            **own,
            "PATH": str(self._image.bin),
            "RUNNER_AGENT_ROOT": str(root),
            "LANG": "C.UTF-8",
        }


def _handles_sigterm(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM (proc(5), SigCgt)."""
    try:
        lines = (
            Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").split("\n")
        )
    except (FileNotFoundError, ProcessLookupError):
        return False
    mask = next(line.partition(":")[2] for line in lines if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
