"""Creates the disk of a Windows machine as a Wine prefix, and writes to it what the user data write."""

import base64
import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.machine_host import LabMachine
from lab.machines.image import set_free_space
from lab.machines.settings import controller_settings
from lab.windows.launcher import launcher
from lab.windows.parts import Parts

BASE = "C:\\ProgramData\\runner-agent"
RUNNER = "C:\\actions-runner"
TASK = "C:\\lab\\task.cmd"
"""The command line of the scheduled task that the user data register, as a file."""

RUN_CMD = """\
@echo off\r
cd /d "%~dp0"\r
bin\\Runner.Listener.exe run\r
exit /b %ERRORLEVEL%\r
"""
"""The lab's stand-in for run.cmd of actions/runner, without the restart after an update of the runner."""

_REGISTRY = ("system.reg", "user.reg", "userdef.reg", ".update-timestamp")
_TASK = re.compile(r'^\$run = "/c `"(.*)`""$', re.MULTILINE)
_ASSIGNED = re.compile(r"""^\$(\w+) = (?:'([^']*)'|"([^"]*)")$""", re.MULTILINE)
_FILE = re.compile(
    r"""^\[IO\.File\]::WriteAllBytes\("([^"]+)", \[Convert\]::FromBase64String\('([^']*)'\)\)$""",
    re.MULTILINE,
)
_SHUTDOWN = re.compile(r"^shutdown\.exe (/s /t \d+) /c '[^']*'$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WindowsDisk:
    """One machine's Wine prefix. Windows paths in arguments are absolute, on drive C."""

    prefix: Path

    def path(self, windows: str) -> Path:
        """Return where this path of the machine lies on the host. Raises ValueError for another drive."""
        drive, _, rest = windows.partition(":\\")
        if drive.upper() != "C":
            raise ValueError(f"{windows} is not on drive C")
        return self.prefix / "drive_c" / Path(*rest.split("\\"))

    def write(self, windows: str, content: str | bytes) -> None:
        """Write a file, and create its folder."""
        path = self.path(windows)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@dataclass(frozen=True, slots=True)
class Booted:
    """What the user data say: the shutdown that they schedule first, the task's command line, files by path."""

    shutdown: list[str]
    task: str
    files: dict[str, bytes]


def read_user_data(text: str) -> Booted:
    """Return what the lab plays of the PowerShell. Raises ValueError if a line is not as expected."""
    shutdown, task = _SHUTDOWN.search(text), _TASK.search(text)
    if shutdown is None or task is None:
        raise ValueError("the user data schedule no shutdown, or register no task")
    values = {"env:ProgramData": "C:\\ProgramData"}
    for name, literal, expanded in _ASSIGNED.findall(text):
        values[name] = literal or _expand(expanded, values)
    files = {
        _expand(path, values): base64.b64decode(content) for path, content in _FILE.findall(text)
    }
    task_line = _expand(task[1].replace('`"', '"'), values)
    return Booted(["shutdown", *shutdown[1].split()], task_line, files)


def make_prefix(prefix: Path, parts: Parts) -> WindowsDisk:
    """Create a disk with Python, the users and the registry, and without the folder of Windows."""
    drive = prefix / "drive_c"
    drive.mkdir(parents=True)
    (prefix / "dosdevices").mkdir()
    (prefix / "dosdevices" / "c:").symlink_to("../drive_c")
    for name in _REGISTRY:
        shutil.copyfile(parts.prefix / name, prefix / name)
    shutil.copytree(parts.prefix / "drive_c" / "users", drive / "users", symlinks=True)
    (drive / "runner-agent").mkdir()
    (drive / "runner-agent" / "python").symlink_to(parts.python)
    return WindowsDisk(prefix)


def make_disk(prefix: Path, parts: Parts, runner_version: str) -> WindowsDisk:
    """Create the disk of a machine as its image leaves it."""
    disk = make_prefix(prefix, parts)
    # Machines only read it.
    (prefix / "drive_c" / "windows").symlink_to(parts.prefix / "drive_c" / "windows")
    _install_runner(disk, parts, runner_version)
    disk.path(f"{BASE}\\handover").mkdir(parents=True)
    return disk


def write_user_data(disk: WindowsDisk, agent: bytes, machine: LabMachine, scale: float) -> None:
    """Write what the user data of a machine write. `scale` as in `Host`.

    Raises ValueError for user data that the lab cannot play.
    """
    settings = asdict(controller_settings(machine.user_data))
    settings["controller"] = settings.pop("url")
    disk.write(f"{BASE}\\controller.json", json.dumps(settings))
    host = {"metadata": machine.metadata_url, "time_scale": scale}
    disk.write(f"{BASE}\\host.json", json.dumps(host))
    disk.write(f"{BASE}\\agent.py", agent)
    set_free_space(disk.path("C:\\"), machine.free_gb)
    booted = read_user_data(machine.user_data)
    for path, content in booted.files.items():
        disk.write(path, content)
    disk.write(TASK, f"@{booted.task}\r\n")


def runner_files(parts: Parts, version: str) -> dict[str, bytes]:
    """Return the files of the lab's stand-in for actions/runner, by path in its folder."""
    files = {"run.cmd": RUN_CMD.encode(), "bin/version": version.encode()}
    for name in ("Runner.Listener", "Runner.Worker"):
        files[f"bin/{name}.exe"] = launcher(parts, name, "runner")
    return files


def _install_runner(disk: WindowsDisk, parts: Parts, version: str) -> None:
    for path, content in runner_files(parts, version).items():
        disk.write(f"{RUNNER}\\{path.replace('/', chr(92))}", content)


def _expand(text: str, values: dict[str, str]) -> str:
    """Replace the variables in a PowerShell string. Raises ValueError for an unknown one."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(f"the user data have no ${found[1]}")
        return values[found[1]]

    return re.sub(r"\$((?:env:)?\w+)", value, text)
