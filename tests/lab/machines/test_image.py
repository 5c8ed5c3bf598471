"""The disks of lab machines: what a host refuses before its first machine boots."""

import re
from pathlib import Path

import pytest

from lab.machines.image import Image, check_python, check_reachable


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, the machines run their jobs as another user."""
    monkeypatch.setattr("os.geteuid", lambda: 0)


@pytest.fixture
def closed(open_folder: Path) -> Path:
    """A Python below a folder like /root."""
    python = open_folder / "root" / "python" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    (open_folder / "root").chmod(0o700)
    return python


def test_a_python_that_is_closed_to_the_machines_user_is_refused_before_the_first_machine(
    open_folder: Path, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(closed))
    root = closed.parents[2]
    with pytest.raises(
        ValueError, match=f"^{re.escape(str(root))} is closed to other users"
    ) as said:
        Image(open_folder / "image", b"", baked=False, scale=1.0)
    assert str(closed) in str(said.value)
    assert f"chmod o+x {root}`" in str(said.value)
    root.chmod(0o711)
    Image(open_folder / "image", b"", baked=False, scale=1.0)


def test_a_standard_library_that_is_closed_to_the_machines_user_is_refused(
    open_folder: Path, closed: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{closed.parents[2]} is closed")):
        check_python(open_folder, closed.parent)


def test_a_python_that_the_same_user_runs_needs_no_open_folders(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    check_python(closed, closed.parent)
    check_reachable(closed.parent)


def test_a_closed_folder_for_machines_is_refused(closed: Path) -> None:
    with pytest.raises(ValueError, match=r"^\S+/root is closed to other users: lab machines need"):
        check_reachable(closed.parent)
