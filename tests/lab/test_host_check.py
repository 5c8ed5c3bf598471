"""What the demo needs of its host, with a made-up /proc and /sys."""

import re
import socket
from pathlib import Path

import pytest

from lab.host_check import HostTooSmallError, check_host, free_memory_mb, free_processes

MIB = 2**20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with 4 GiB of free memory, and a process in no control group."""
    write(tmp_path / "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    write(tmp_path / "proc/self/cgroup", "")
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def in_group(root: Path, controllers: str, path: str, files: dict[str, str]) -> None:
    write(root / "proc/self/cgroup", f"3:{controllers}:{path}\n")
    for name, text in files.items():
        write(root / f"sys/fs/cgroup/{controllers}{path}" / name, text)


def test_a_host_with_four_gib_of_memory_has_room_for_the_demo(root: Path) -> None:
    check_host(root, 48, root)
    assert (free_memory_mb(root), free_processes(root)) == (4096, None)


def test_a_host_that_does_not_say_what_it_has_is_not_refused(tmp_path: Path) -> None:
    check_host(tmp_path, 48, tmp_path)


def test_too_little_memory_is_said_with_both_figures(root: Path) -> None:
    write(root / "proc/meminfo", "MemAvailable: 1048576 kB\n")
    expected = "the demo with 48 machines needs 1800 MiB of memory, and 1024 MiB are free"
    with pytest.raises(HostTooSmallError, match=f"^{expected}$"):
        check_host(root, 48, root)
    check_host(root, 3, root)
    expected = "the demo with 10 machines needs 1100 MiB of memory, and 1024 MiB are free"
    with pytest.raises(HostTooSmallError, match=f"^{expected}$"):
        check_host(root, 10, root, replicas=True)
    check_host(root, 10, root)


@pytest.mark.parametrize(
    ("controllers", "limit", "used"),
    [("", "memory.max", "anon"), ("memory", "memory.limit_in_bytes", "total_rss")],
    ids=["version 2", "version 1"],
)
def test_the_limit_of_a_control_group_counts_and_its_caches_do_not(
    root: Path, controllers: str, limit: str, used: str
) -> None:
    statistics = f"{used} {100 * MIB}\nfile {900 * MIB}\ntotal_cache {900 * MIB}\n"
    files = {limit: f"{1024 * MIB}\n", "memory.stat": statistics}
    in_group(root, controllers, "/a/b", files)
    assert free_memory_mb(root) == 924
    # The limit of a group is also one of the groups in it.
    write(root / "proc/self/cgroup", f"3:{controllers}:/a/b/c\n")
    assert free_memory_mb(root) == 924


def test_a_group_without_a_limit_leaves_the_hosts_memory(root: Path) -> None:
    in_group(root, "", "/a", {"memory.max": "max\n", "memory.stat": "anon 5\n", "pids.max": "max"})
    assert (free_memory_mb(root), free_processes(root)) == (4096, None)


def test_a_container_whose_group_has_the_path_of_its_host_finds_its_limit(root: Path) -> None:
    in_group(root, "", "/", {"pids.max": "300\n", "pids.current": "20\n"})
    write(root / "proc/self/cgroup", "0::/docker/0123\n")
    assert free_processes(root) == 280
    with pytest.raises(HostTooSmallError, match=r"needs 434 processes, .* admits 280 more$"):
        check_host(root, 48, root)


def test_a_full_disk_is_said_with_its_folder(root: Path) -> None:
    # A file system without any free block.
    with pytest.raises(HostTooSmallError, match=r"MiB of disk in /proc, and 0 MiB .* TMPDIR"):
        check_host(Path("/proc"), 48, root)


def test_a_host_without_loopback_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: tuple[str, int]) -> socket.socket:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuse)
    expected = "the demo needs the loopback address 127.0.0.1: Cannot assign requested address"
    with pytest.raises(HostTooSmallError, match=f"^{re.escape(expected)}$"):
        check_host(root, 48, root)
