"""The `python3` of lab machines: runs a program with the machine's free disk space in place of the host's.

A file in the root of each machine and container has the free bytes of its disk, as statvfs(3) finds a file
system by a path. So a machine has the same disk on every host, and may have one that is too small. On Linux
this file is the program `python3`. On the lab's Windows machines it is the end of Lib/shutil.py. Standard
library only.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

FILE = ".free-bytes"
BLOCK = 4096
BYTES_PER_INODE = 16_384
"""As mke2fs.conf(5) has it (inode_ratio)."""


def free_bytes_at(path: str) -> int | None:
    """Return the free bytes of the lab's disk with this path, or None if it is on no disk of the lab."""
    folder, parent = "", os.path.abspath(path)
    while folder != parent:
        folder, parent = parent, os.path.dirname(parent)
        try:
            with open(os.path.join(folder, FILE), encoding="ascii") as file:
                return int(file.read())
        except OSError:
            continue
    return None


def lab_statvfs(host: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a statvfs(3) for the disks of the lab. It asks the host's about all other paths."""

    def statvfs(path: Any) -> Any:
        free = free_bytes_at(path) if isinstance(path, str) else None
        if free is None:
            return host(path)
        blocks, inodes = free // BLOCK, free // BYTES_PER_INODE
        of_disk = (BLOCK, BLOCK, blocks, blocks, blocks, inodes, inodes, inodes, 0, 255)
        return os.statvfs_result(of_disk)

    return statvfs


def lab_disk_usage(
    host: Callable[[Any], Any], result: Callable[[int, int, int], Any]
) -> Callable[[Any], Any]:
    """Return a `shutil.disk_usage` for the disks of the lab. `result` makes its answer."""

    def disk_usage(path: Any) -> Any:
        free = free_bytes_at(path)
        return host(path) if free is None else result(free, 0, free)

    return disk_usage


def main() -> None:
    """Run what the command line says: `[-I] [-S] (FILE | -c CODE) [ARGUMENT ...]`."""
    os.statvfs = lab_statvfs(os.statvfs)  # type: ignore[assignment]
    # The program starts others with it.
    sys.executable = os.path.abspath(sys.argv.pop(0))
    while sys.argv[0] in ("-I", "-S"):
        sys.argv.pop(0)
    if sys.argv[0] == "-c":
        name, source = "<string>", sys.argv.pop(1).encode()
    else:
        name = sys.argv[0]
        with open(name, "rb") as file:
            source = file.read()
    program = type(sys)("__main__")
    program.__dict__.update(__file__=name, __builtins__=__builtins__)
    sys.modules["__main__"] = program
    exec(compile(source, name, "exec"), program.__dict__)  # noqa: S102 - Python runs programs


if __name__ == "__main__":
    main()
