"""The controller reads regular files only: another kind of file may keep it waiting."""

import os
from pathlib import Path

import pytest

from autoscaler.config.files.pem import read_pem
from autoscaler.config.files.regular_files import (
    MAX_REGULAR_BYTES,
    UnusableFileError,
    open_regular,
    read_regular,
)


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"words")
    link = tmp_path / "link"
    link.symlink_to(file)
    assert read_regular(file) == read_regular(link) == b"words"


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(MAX_REGULAR_BYTES))
    assert len(read_regular(file)) == MAX_REGULAR_BYTES
    # Sparse, and larger than this host's memory: only a bounded read returns.
    os.truncate(file, 2**36)
    with pytest.raises(OSError, match=f"Larger than 1 MiB: '{file}'"):
        read_regular(file)


@pytest.mark.parametrize("writer", [False, True], ids=["no writer", "a silent writer"])
def test_a_fifo_is_refused_at_once(tmp_path: Path, writer: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDWR) if writer else None
    try:
        with pytest.raises(OSError, match="Not a regular file"):
            open_regular(fifo)
        with pytest.raises(UnusableFileError, match="Not a regular file"):
            read_pem(fifo)
    finally:
        if end is not None:
            os.close(end)


def test_a_device_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Not a regular file"):
        open_regular(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
