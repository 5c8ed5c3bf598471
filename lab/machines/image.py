"""Creates the disk of a lab machine: folders, stand-in commands, runner, host file."""

import json
import os
import pwd
import shutil
import stat
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType

from lab.machine_host import FREE_GB, RUNNER_VERSION
from lab.machines import machine_python
from lab.machines.gpus import install_gpus_of

_COMMANDS = ("shutdown", "systemctl", "nvidia-smi", "rocminfo", "apt-get", "dpkg")
_TOOLS = (
    *("base64", "bash", "cat", "chmod", "chown", "env", "gzip", "id", "mkdir", "mv", "rm"),
    *("setsid", "sh", "sha256sum", "sleep", "tail", "tar", "timeout"),
)
"""The commands that user data, the agent and stand-ins use. A lab machine's PATH has no others."""

UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class Disk:
    """One machine's root folder, and the paths of its files."""

    root: Path

    @property
    def power(self) -> Path:
        """The pipe to which the stand-in for `shutdown` writes."""
        return self.root / "run" / "power"

    @property
    def host_file(self) -> Path:
        """The file with the lab's settings for the agent."""
        return self.root / "etc" / "runner-agent" / "host.json"

    @property
    def runner(self) -> Path:
        """The folder in which the runner is installed."""
        return self.root / "opt" / "actions-runner"

    @property
    def logs(self) -> Path:
        """The folder with the output of the user data and of the agent."""
        return self.root / "var" / "log"


class Image:
    """The files that all machines of one host share, in `folder`: commands, tools and the runner.

    `baked` says whether the agent is on the machines' disks. Otherwise the machines must fetch it.
    Raises ValueError if the user of the runner cannot run this process's Python.
    """

    def __init__(
        self,
        folder: Path,
        agent: bytes,
        baked: bool,
        scale: float,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        python = Path(sys.executable).resolve()
        check_python(python, Path(sysconfig.get_path("stdlib")).resolve())
        self.folder = folder
        self.bin = folder / "bin"
        self.agent = folder / "agent.py"
        self._programs = folder / "runner"
        self._baked = baked
        self._scale = scale
        self._environment = "".join(f"{name}={value}\n" for name, value in environment.items())
        for made in (folder, self.bin, self._programs):
            made.mkdir(mode=0o755, parents=True)
            made.chmod(0o755)
        self.agent.write_bytes(agent)
        with as_file(files(__package__) / "programs") as programs:
            for program in programs.iterdir():
                target = self.bin if program.name in _COMMANDS else self._programs
                shutil.copyfile(program, target / program.name)
                (target / program.name).chmod(0o755)
        for tool in _TOOLS:
            found = shutil.which(tool)
            if found is None:
                raise RuntimeError(f"the lab's machines need {tool}")
            (self.bin / tool).symlink_to(found)
        self._install_python(python)

    def make_disk(
        self,
        root: Path,
        metadata_url: str,
        runner_version: str = RUNNER_VERSION,
        instance_type: str = "",
        free_gb: float = FREE_GB,
    ) -> Disk:
        """Create the disk of one machine. Its GPUs are those of the instance type.

        Without a `runner_version` it has no runner, as a stock image.
        """
        disk = Disk(root)
        for name in ("etc/systemd/system", "opt", "run/systemd/system", "var/log"):
            (root / name).mkdir(mode=0o755, parents=True)
        for name in ("etc/runner-agent", "opt/runner-agent", "var/lib/runner-agent"):
            (root / name).mkdir(mode=0o700, parents=True)
        if self._baked:
            (root / "opt" / "runner-agent" / "agent.py").symlink_to(self.agent)
        if runner_version:
            self.install_runner(disk.runner, runner_version)
        disk.host_file.with_name("environment").write_text(self._environment, encoding="utf-8")
        set_free_space(root, free_gb)
        install_gpus_of(root, instance_type)
        os.mkfifo(disk.power, 0o600)
        disk.host_file.touch(0o600)
        disk.host_file.write_text(json.dumps(self._host(disk, metadata_url)), encoding="utf-8")
        return disk

    def install_runner(self, folder: Path, version: str = RUNNER_VERSION) -> None:
        """Install the runner in a new folder, which the runner's user owns."""
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "version").write_text(f"{version}\n")
        (folder / "run.sh").symlink_to(self._programs / "run.sh")
        for name in ("Runner.Listener", "Runner.Worker"):
            (folder / "bin" / name).symlink_to(self._programs / name)
        if os.geteuid() == 0:
            account = pwd.getpwnam(UNPRIVILEGED)
            os.chown(folder, account.pw_uid, account.pw_gid)

    def _install_python(self, python: Path) -> None:
        """Install the machines' Python. A `#!` line cannot have a path with a blank, hence the link."""
        (self._programs / "python").symlink_to(python)
        program = self.bin / "python3"
        source = Path(machine_python.__file__).read_text(encoding="utf-8")
        program.write_text(f"#!{self._programs / 'python'} -IS\n{source}", encoding="utf-8")
        program.chmod(0o755)

    def _host(self, disk: Disk, metadata_url: str) -> dict[str, object]:
        shutdown = str(self.bin / "shutdown")
        return {
            "root": str(disk.root),
            "metadata": metadata_url,
            "power_off": [shutdown, "-P", "now"],
            "disarm": [shutdown, "-c"],
            "time_scale": self._scale,
            "runner_user": UNPRIVILEGED if os.geteuid() == 0 else None,
            "runner_directory": str(disk.runner),
        }


def set_free_space(root: Path, free_gb: float) -> None:
    """Set the free space that the programs of a machine or container find on its disk, in GiB."""
    file = root / machine_python.FILE
    file.write_text(str(int(free_gb * 2**30)), encoding="ascii")
    file.chmod(0o644)


def check_reachable(folder: Path) -> None:
    """Raise ValueError if machines cannot use this folder. As root, other users must be able to enter it."""
    if len(str(folder).split()) != 1:
        # The path becomes part of command lines in the unit that the user data writes.
        raise ValueError(f"{folder} has a blank in its name: lab machines need a folder without")
    part = closed_part(folder.resolve()) if os.geteuid() == 0 else None
    if part is not None:
        raise ValueError(f"{part} is closed to other users: lab machines need an open folder")


def check_python(python: Path, library: Path) -> None:
    """Raise ValueError if the machines' user cannot run this Python, or cannot read its standard library.

    As root, the machines run their jobs as another user. A Python below /root is closed to it, such as one
    that uv has installed for root.
    """
    if os.geteuid() != 0:
        return
    for path in (python, library):
        part = closed_part(path)
        if part is not None:
            raise ValueError(
                f"{part} is closed to other users, so {UNPRIVILEGED}, who runs the lab's jobs, cannot use "
                f"{path}: open it with `chmod o+x {part}`, or run the lab with a Python outside of it"
            )


def closed_part(path: Path) -> Path | None:
    """Return the first part of a resolved path, from its end, that other users cannot enter or run; or None."""
    for part in (path, *path.parents):
        if not part.stat().st_mode & stat.S_IXOTH:
            return part
    return None
