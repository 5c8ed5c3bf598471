"""Checks that this host has what a replay needs: memory, disk, processes and loopback.

The needs were measured with the built-in push, whose 48 machines took 1.7 GiB of memory (as the sum of PSS),
344 processes and 17 MiB of disk.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from autoscaler.model.wording import counted

BASE_MB, MACHINE_MB = 600, 25
"""MiB of memory for GitHub, EC2 and the controller, and for each machine that runs at the same time."""

BASE_PROCESSES, MACHINE_PROCESSES = 50, 8
DISK_MB = 100

REPLICAS_MB, REPLICAS_PROCESSES, REPLICAS_DISK_MB = 250, 40, 100
"""What two more controllers and a PostgreSQL server need besides: they took 200 MiB of memory, 15 processes and
45 MiB of disk, and the copy of the store at the end takes some more."""


class HostTooSmallError(Exception):
    """The host lacks something. The message is a sentence that says what, and how much of it there is."""


def check_host(
    folder: Path, machines: int, root: Path = Path("/"), *, replicas: bool = False
) -> None:
    """Check that the host has room for so many machines at once. Raises HostTooSmallError, OSError.

    The lab writes its files to `folder`. `root` is the root of the host's files. `replicas`: three controllers
    share a PostgreSQL server.
    """
    demo = f"the demo with {counted(machines, 'machine')} needs"
    wanted, memory = BASE_MB + MACHINE_MB * machines + replicas * REPLICAS_MB, free_memory_mb(root)
    if memory is not None and memory < wanted:
        raise HostTooSmallError(f"{demo} {wanted} MiB of memory, and {memory} MiB are free")
    found = os.statvfs(folder)
    disk = found.f_bavail * found.f_frsize >> 20
    wanted = DISK_MB + replicas * REPLICAS_DISK_MB
    if disk < wanted:
        why = f"the demo needs {wanted} MiB of disk in {folder}, and {disk} MiB are free there"
        raise HostTooSmallError(f"{why}: TMPDIR can name another folder")
    wanted = BASE_PROCESSES + MACHINE_PROCESSES * machines + replicas * REPLICAS_PROCESSES
    processes = free_processes(root)
    if processes is not None and processes < wanted:
        why = f"{demo} {wanted} processes, and the control group admits {processes} more"
        raise HostTooSmallError(why)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5.0).close()
    except OSError as error:
        why = f"the demo needs the loopback address 127.0.0.1: {error.strerror or error}"
        raise HostTooSmallError(why) from error


def free_memory_mb(root: Path) -> int | None:
    """Return the MiB of memory that new processes can get: the host's, or less in a control group."""
    found = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        available = _fields(root / "proc/meminfo")["MemAvailable:"]
        found.append(available >> 10)
    for group in _groups(root, "memory"):
        for limit, used in (("memory.max", "anon"), ("memory.limit_in_bytes", "total_rss")):
            # Caches count against the limit too, but the kernel frees them.
            with contextlib.suppress(OSError, KeyError, ValueError):
                most = int((group / limit).read_text())
                found.append(max(0, most - _fields(group / "memory.stat")[used]) >> 20)
    return min(found, default=None)


def free_processes(root: Path) -> int | None:
    """Return how many more processes the control groups admit; None without a limit."""
    found = []
    for group in _groups(root, "pids"):
        with contextlib.suppress(OSError, ValueError):
            most = int((group / "pids.max").read_text())
            found.append(max(0, most - int((group / "pids.current").read_text())))
    return min(found, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, of both versions, from its own group up.

    In a container, /proc may show a path of the host. The top folder is then the container's own group.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controllers if controllers else "")
        group = top / path.lstrip("/")
        yield group
        yield from (parent for parent in group.parents if parent.is_relative_to(top))


def _fields(file: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}
