"""Ends every process of a Wine prefix.

Wine gives its processes sessions and parents of their own. They all inherit WINEPREFIX, also Wine's server.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from lab.windows.parts import wine_environment

_PATIENCE = 300.0
"""Seconds that Wine's server has to end."""


def processes(prefix: Path) -> set[int]:
    """Return the living processes of this prefix (proc(5), /proc/PID/environ)."""
    wanted = f"WINEPREFIX={prefix}".encode()
    found = set()
    for folder in os.scandir("/proc"):
        if folder.name.isdigit():
            try:
                variables = Path(folder.path, "environ").read_bytes().split(b"\0")
            except OSError:  # it ended, or another user's
                continue
            if wanted in variables:
                found.add(int(folder.name))
    return found


def end_processes(prefix: Path) -> None:
    """Kill all processes of this prefix. On return, none is left."""
    while found := processes(prefix):
        # Without Wine's server no process can start another one.
        for pid in sorted(found, key=lambda pid: not _is_server(pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def shut_down(prefix: Path) -> None:
    """End all processes of this prefix, after Wine's server has written the registry to the prefix.

    A server that does not end in five minutes is killed.
    """
    for option in ("-k", "-w"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - Wine's own command
                ["wineserver", option],  # noqa: S607
                check=False,
                env=wine_environment(prefix),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
            )
    end_processes(prefix)


def _is_server(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().startswith(b"wineserver")
    except OSError:
        return False
