"""scripts/fresh.sh: Ctrl-C removes all its files. A fake mmdebstrap creates no root file system."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[1]
MMDEBSTRAP = "#!/bin/sh\necho making\nexec sleep 600\n"
RM = """#!/bin/sh
echo removing
until [ -e "$GO_ON" ]; do sleep 0.05; done
exec /bin/rm "$@"
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def fresh(tmp_path: Path, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """The script in a process group of its own; `rm` waits until the test lets it go on."""
    assert os.geteuid() == 0, "makes a root for Debian as root only; run: sudo make test-systems"
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("mmdebstrap", MMDEBSTRAP), ("rm", RM)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    go_on = str(tmp_path / "go_on")
    # A process that a shell started in the background ignores SIGINT, and so do its children.
    command = ["env", "--default-signal=INT", "bash", "scripts/fresh.sh", "true"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path, "TMPDIR": str(scratch), "GO_ON": go_on},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as process:
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    seen = []
    for found in process.stdout:
        seen.append(found)
        if found.strip() == line:
            return
    raise AssertionError("".join(seen))


@pytest.mark.systems
def test_ctrl_c_ends_the_script_and_removes_its_files(
    fresh: subprocess.Popen[str], scratch: Path, tmp_path: Path
) -> None:
    """A second Ctrl-C, while it removes the root, stops nothing: people press it more than once."""
    read_until(fresh, "making")
    assert list(scratch.iterdir()), "the test looks in the wrong place"
    os.killpg(fresh.pid, signal.SIGINT)
    read_until(fresh, "removing")
    os.killpg(fresh.pid, signal.SIGINT)
    (tmp_path / "go_on").touch()
    assert fresh.wait(PATIENCE) == 130
    assert list(scratch.iterdir()) == []
