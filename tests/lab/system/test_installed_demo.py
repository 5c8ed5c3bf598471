"""The demo from the built wheel, as a new user runs it: the commands that `autoscaler init --demo` prints."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.go_builds import UV

ROOT = Path(__file__).parents[3]
USER = 64_731
"""An ordinary user without an account, who runs nothing else on this host."""

SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with the wheel and its extra installed in `venv`, in a folder that the user can reach."""
    assert os.geteuid() == 0, "becomes another user; run: sudo make test-systems"
    with tempfile.TemporaryDirectory(prefix="demo-home-") as folder:
        made = Path(folder)
        made.chmod(0o755)
        build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        [wheel] = made.glob("*.whl")
        python = str(Path(sys.executable).resolve())
        # UV_LINK_MODE: the cache may be in another file system than the folder.
        environment = {**os.environ, "UV_LINK_MODE": "copy"}
        for words in (
            ("venv", "--quiet", "--no-managed-python", "--python", python, "venv"),
            ("pip", "install", "--quiet", "--python", "venv/bin/python", f"{wheel}[demo]"),
        ):
            subprocess.run((UV, *words), cwd=folder, env=environment, check=True)
        wheel.unlink()
        (made / "home").mkdir()
        (made / "home" / "tmp").mkdir()
        for one in (made / "home", made / "home" / "tmp"):
            os.chown(one, USER, USER)
        yield made


def start(home: Path, line: str) -> subprocess.Popen[str]:
    """Start a line of a shell as the user, in the user's home."""
    environment = {
        "PATH": f"{home}/venv/bin:/usr/bin:/bin",
        "HOME": str(home / "home"),
        "TMPDIR": str(home / "home" / "tmp"),
        "LANG": "C.UTF-8",
    }
    user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")
    return subprocess.Popen(
        (*user, "bash", "-c", f"exec {line}"),
        cwd=home / "home",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(process: subprocess.Popen[str], wanted: str) -> str:
    """Read the output of a process up to a line with this text. Return what was read."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if wanted in line:
            return read
    raise AssertionError(f"{wanted!r} does not come; the output is:\n{read}")


def stop(process: subprocess.Popen[str]) -> str:
    """Do what Ctrl-C does, and return the rest of the output."""
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate()
    assert process.returncode == 0, rest
    return rest


def processes() -> list[str]:
    """Return the command lines of the user's processes."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if one.stat().st_uid == USER:
                found.append((one / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def files_elsewhere(home: Path) -> list[str]:
    """Return the user's files in the folders that everyone can write, outside the home."""
    command = ("find", *SHARED, "-path", str(home), "-prune", "-o", "-uid", str(USER), "-print")
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.wait_limit(seconds=900, reason="installs forty packages and moto on a busy host")
def test_an_ordinary_user_runs_a_job_from_the_wheel_and_nothing_is_left(home: Path) -> None:
    init = start(home, "autoscaler init --demo demo")
    said, _ = init.communicate()
    assert init.returncode == 0, said
    lab_line, serve_line, status_line = re.findall(r"^\d\. in a \w+ terminal: (.*)$", said, re.M)
    with ExitStack() as stack:
        lab = stack.enter_context(start(home, lab_line))
        stack.callback(lab.kill)
        until(lab, "GitHub and EC2 are up")
        serve = stack.enter_context(start(home, serve_line))
        stack.callback(serve.kill)
        steps = until(lab, "EC2 terminates a machine")
        assert "A job on linux.g5.xlarge ends: success" in steps
        status = start(home, status_line)
        assert "nothing is wrong" in status.communicate()[0]
        assert stop(serve).count("shutdown_started") == 1
        stop(lab)
    assert processes() == []
    assert files_elsewhere(home) == []
    assert sorted(one.name for one in (home / "home").iterdir()) == ["demo", "tmp"]
    assert list((home / "home" / "tmp").iterdir()) == []
    shutil.rmtree(home / "home" / "demo")
