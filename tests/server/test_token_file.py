"""The file of operators' tokens: read again when it changes, and kept while it cannot be used."""

import os
from pathlib import Path

import pytest
import structlog

from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.server.tokens import TokenFile, UnusableTokensError

OLD, NEW = "o" * 40, "n" * 40


def opened(file: Path) -> TokenFile:
    """Tokens of a file with one per line; a line `bad` makes it unusable."""

    def read() -> list[tuple[bytes, Operator]]:
        lines = file.read_bytes().split() if file.exists() else [b"bad"]
        if b"bad" in lines:
            raise UnusableTokensError(f"{file.name} has a bad line")
        return [(line, Operator(OperatorName("alice"), Role.OPERATE)) for line in lines]

    return TokenFile(file, read)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "admin-token"
    found.write_text(OLD)
    return found


def test_a_new_token_is_valid_and_a_removed_one_is_not_at_once(file: Path) -> None:
    tokens = opened(file)
    assert tokens.tokens().holder_of(OLD) is not None
    with structlog.testing.capture_logs() as lines:
        file.write_text(f"{OLD}\n{NEW}")
        assert all(tokens.tokens().holder_of(one) for one in (OLD, NEW))
        file.write_text(NEW)
        assert tokens.tokens().holder_of(OLD) is None
        assert tokens.tokens().holder_of(NEW) is not None
    assert [line["event"] for line in lines] == ["admin_tokens_reloaded"] * 2
    assert lines[0]["operators"] == ["alice (operate)"]
    assert NEW not in str(lines)


def test_a_file_that_is_replaced_by_a_rename_is_read_again(file: Path) -> None:
    """As Kubernetes replaces the files of a mounted Secret."""
    tokens = opened(file)
    before = file.stat()
    other = file.with_name("new")
    other.write_text(NEW)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert tokens.tokens().holder_of(OLD) is None
    assert tokens.tokens().holder_of(NEW) is not None


def test_a_file_that_is_written_with_its_earlier_size_and_time_is_read_again(file: Path) -> None:
    """As `cp -p` does with files that a reproducible build has given one time."""
    os.utime(file, ns=(0, 0))
    tokens = opened(file)
    before = file.stat()
    for _ in range(100_000):  # a file system counts time in ticks of some milliseconds
        file.write_text(NEW)
        os.utime(file, ns=(0, 0))
        if file.stat().st_ctime_ns != before.st_ctime_ns:
            break
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert tokens.tokens().holder_of(OLD) is None
    assert tokens.tokens().holder_of(NEW) is not None


@pytest.mark.parametrize("content", ["", None])
def test_no_token_is_valid_without_a_file_or_with_an_empty_one(
    file: Path, content: str | None
) -> None:
    tokens = opened(file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with structlog.testing.capture_logs() as lines:
        assert all(tokens.tokens().holder_of(OLD) is None for _ in range(3))
    assert [(line["event"], line["operators"]) for line in lines] == [("admin_tokens_reloaded", [])]
    file.write_text(OLD)
    assert tokens.tokens().holder_of(OLD) is not None


def test_the_earlier_tokens_stay_in_use_while_the_file_cannot_be_used(file: Path) -> None:
    tokens = opened(file)
    file.write_text("bad")
    with structlog.testing.capture_logs() as lines:
        assert all(tokens.tokens().holder_of(OLD) is not None for _ in range(3))
    assert [(line["event"], line["error"]) for line in lines] == [
        ("admin_tokens_not_reloaded", "admin-token has a bad line")
    ]
    file.write_text(NEW)
    assert tokens.tokens().holder_of(NEW) is not None


def test_a_file_that_cannot_be_used_at_the_start_is_an_error(file: Path) -> None:
    file.write_text("bad")
    with pytest.raises(UnusableTokensError, match="has a bad line"):
        opened(file)
