"""The kernel's log as /dev/kmsg gives it: a message with each read, and errors between them."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoscaler.agent.checks.kernel_log import check_amdgpu_log, check_xids, read_kernel_log

BOOT = b"6,1,0,-;Linux version 6.8\n"
XID = b"4,812,5140900,-;NVRM: Xid (PCI:0000:cb:00): 79, GPU has fallen off the bus.\n"
AMD = b"3,1,1,-;amdgpu 0000:02:00.0: amdgpu: device lost from bus!\n"
OVERWRITTEN = BrokenPipeError(errno.EPIPE, "overwritten")
END = BlockingIOError(errno.EAGAIN, "no more messages")


def read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Sequence[bytes | OSError]
) -> str | None:
    """Return the log of a /dev/kmsg whose reads have these answers, each of which is used."""
    left = list(answers)

    def answer(_descriptor: int, _size: int) -> bytes:
        found = left.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    file = tmp_path / "kmsg"
    file.touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "read", answer)
        log = read_kernel_log(str(file))
    assert left == []
    return log


@pytest.mark.parametrize(
    "answers",
    [
        [OVERWRITTEN, XID, AMD, END],
        [BOOT, OVERWRITTEN, XID, AMD, END],
        [BOOT, XID, OVERWRITTEN, AMD, END],
        [OVERWRITTEN, OVERWRITTEN, BOOT, OVERWRITTEN, XID, OVERWRITTEN, AMD, OVERWRITTEN, END],
        [BOOT, OVERWRITTEN, XID, AMD, b""],
    ],
)
def test_errors_of_gpus_are_found_after_messages_that_were_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[bytes | OSError]
) -> None:
    """EPIPE says that the reader was too slow; the next read has the next message that is left."""
    log = read(tmp_path, monkeypatch, answers)
    assert not check_xids(log).ok
    assert not check_amdgpu_log(log).ok


@pytest.mark.parametrize("answers", [[END], [OVERWRITTEN, END], [BOOT, END], [b""]])
def test_a_log_without_errors_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[bytes | OSError]
) -> None:
    log = read(tmp_path, monkeypatch, answers)
    assert (check_xids(log).ok, check_xids(log).detail) == (True, "none")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.EIO])
def test_a_log_that_cannot_be_read_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    assert read(tmp_path, monkeypatch, [BOOT, OSError(number, "no")]) is None
    assert read_kernel_log(str(tmp_path / "absent")) is None
