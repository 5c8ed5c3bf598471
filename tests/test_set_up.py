"""scripts/bootstrap.sh: what it installs, what it names, and that it does nothing twice.

Stand-ins for uv and for scripts/npm_packages.py keep this off the network; `make` on a fresh
checkout shows the rest.
"""

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("bash", "cat", "dirname", "env", "grep", "ln", "mkdir", "rm", "setpriv", "sha256sum", "sh")
SYSTEMS_ONLY = (
    "buildah",
    "mmdebstrap",
    "packer",
    "curl",
    "gpg",
    "gpg-agent",
    "openssl",
    "patch",
    "strace",
    "nginx",
    "caddy",
)
WINE = ("wine", "wine64") if platform.machine() == "x86_64" else ()
UV = """#!/bin/sh
[ "$1" = --version ] && echo "uv 0.13.8 (stand-in)" && exit
echo "$*" >> calls
[ "$1" = venv ] && mkdir -p .venv/bin && ln -sf "{python}" .venv/bin/python
exit 0
"""
PACKAGES = """
import pathlib, sys
with open("calls", "a") as calls:
    calls.write("packages\\n")
sys.exit(pathlib.Path("offline").exists())
"""
APT_GET = """#!/bin/sh
echo "$*" >> "{calls}"
"""


@dataclass(frozen=True)
class Checkout:
    """A folder with the script and what it reads, and the programs that it finds."""

    folder: Path
    programs: Path

    def offer(self, name: str, program: str | Path) -> None:
        (self.programs / name).symlink_to(program)

    def set_up(self, *purpose: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / "bash", self.folder / "scripts" / "bootstrap.sh", *purpose],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={"PATH": str(self.programs)},
        )

    def calls(self) -> list[str]:
        """Return the calls of uv since the last time, and when packages were downloaded."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line.split()[0] for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "a checkout", tmp_path / "programs")
    made.programs.mkdir()
    (made.folder / "scripts").mkdir(parents=True)
    for name in ("scripts/bootstrap.sh", "pyproject.toml", "uv.lock"):
        shutil.copyfile(ROOT / name, made.folder / name)
    (made.folder / "scripts" / "npm_packages.py").write_text(PACKAGES)
    uv = made.folder / ".cache" / "uv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(UV.format(python=Path(sys.executable).resolve()))
    uv.chmod(0o755)
    ldconfig = made.programs / "ldconfig"
    ldconfig.write_text("#!/bin/sh\necho libatomic.so.1\n")
    ldconfig.chmod(0o755)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        made.offer(tool, found)
    return made


@pytest.fixture
def complete(checkout: Checkout) -> Checkout:
    """Return a checkout in which nothing is missing."""
    checkout.offer("python3", Path(sys.executable).resolve())
    for tool in (*SYSTEMS_ONLY, *WINE[:1], "chromium"):
        checkout.offer(tool, checkout.programs / "sh")
    return checkout


def test_without_python_set_up_prints_what_it_needs(checkout: Checkout) -> None:
    done = checkout.set_up()
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr


def test_set_up_names_packages_that_it_cannot_install(checkout: Checkout) -> None:
    checkout.offer("python3", Path(sys.executable).resolve())
    done = checkout.set_up("systems")
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        " ".join(["apt-get install", *SYSTEMS_ONLY, *WINE, "chromium"])
    )
    assert checkout.calls() == []


@pytest.mark.parametrize("purpose", ["demo", "test"])
def test_only_the_systems_need_other_programs(checkout: Checkout, purpose: str) -> None:
    checkout.offer("python3", Path(sys.executable).resolve())
    done = checkout.set_up(purpose)
    assert (done.returncode, done.stderr) == (0, "")
    assert checkout.calls() == ["venv", "sync"]


def offer_disk(checkout: Checkout, free_mb: int) -> None:
    program = checkout.programs / "df"
    program.write_text(f"#!/bin/sh\necho Avail\necho ' {free_mb}'\n")
    program.chmod(0o755)


@pytest.mark.parametrize(("purpose", "needed"), [("demo", 550), ("test", 1000)])
def test_packages_that_the_disk_has_no_room_for_are_not_installed(
    complete: Checkout, purpose: str, needed: int
) -> None:
    offer_disk(complete, needed - 1)
    done = complete.set_up(purpose)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: the packages need {needed} MiB of disk in {complete.folder}, "
        f"and {needed - 1} MiB are free\n"
    )
    assert complete.calls() == []
    offer_disk(complete, needed)
    assert complete.set_up(purpose).returncode == 0


def test_set_up_for_the_systems_after_a_demo_adds_the_missing_packages(
    complete: Checkout,
) -> None:
    complete.set_up("demo")
    assert "--no-default-groups" in (complete.folder / "calls").read_text()
    complete.calls()
    assert complete.set_up("systems").returncode == 0
    assert "--no-default-groups" not in (complete.folder / "calls").read_text()
    assert complete.calls() == ["sync", "packages"]
    # Tests and a demo after that have all that they need.
    assert complete.set_up("test").returncode == 0
    assert complete.set_up("demo").returncode == 0
    assert complete.calls() == []


def test_an_unknown_purpose_is_refused(complete: Checkout) -> None:
    done = complete.set_up("tests")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: usage: scripts/bootstrap.sh [demo|test|systems]\n"


def test_root_installs_what_is_missing(checkout: Checkout, tmp_path: Path) -> None:
    checkout.offer("python3", Path(sys.executable).resolve())
    apt_get = checkout.programs / "apt-get"
    apt_get.write_text(APT_GET.format(calls=tmp_path / "apt"))
    apt_get.chmod(0o755)
    done = checkout.set_up("systems")
    if os.geteuid() == 0:
        installed = (tmp_path / "apt").read_text().splitlines()[-1].split()
        assert (done.returncode, installed[0]) == (0, "install")
        wanted = [*SYSTEMS_ONLY, *WINE, "chromium"]
        assert installed[-len(wanted) :] == wanted
    else:
        assert (done.returncode, (tmp_path / "apt").exists()) == (1, False)


def test_set_up_runs_only_once(complete: Checkout) -> None:
    first = complete.set_up()
    assert (first.returncode, first.stderr) == (0, "")
    assert complete.calls() == ["venv", "sync"]
    again = complete.set_up()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert complete.calls() == []


def test_another_name_of_the_same_python_changes_nothing(complete: Checkout) -> None:
    complete.set_up()
    complete.calls()
    complete.offer("python3.11", Path(sys.executable).resolve())
    assert complete.set_up().returncode == 0
    assert complete.calls() == []


def test_another_lock_is_installed_into_the_same_environment(complete: Checkout) -> None:
    complete.set_up()
    complete.calls()
    with (complete.folder / "uv.lock").open("a") as lock:
        lock.write("# changed\n")
    assert complete.set_up().returncode == 0
    assert complete.calls() == ["sync"]


def test_a_moved_checkout_is_set_up_again(complete: Checkout, tmp_path: Path) -> None:
    complete.set_up()
    complete.calls()
    moved = Checkout(complete.folder.rename(tmp_path / "elsewhere"), complete.programs)
    assert moved.set_up().returncode == 0
    assert moved.calls() == ["venv", "sync"]


def test_an_environment_without_its_python_is_created_again(complete: Checkout) -> None:
    complete.set_up()
    complete.calls()
    (complete.folder / ".venv" / "bin" / "python").unlink()
    assert complete.set_up().returncode == 0
    assert complete.calls() == ["venv", "sync"]


def test_missing_packages_do_not_stop_set_up_and_only_they_are_retried(
    complete: Checkout,
) -> None:
    (complete.folder / "offline").touch()
    assert complete.set_up("systems").returncode == 0
    assert complete.calls() == ["venv", "sync", "packages"]
    again = complete.set_up("systems")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert complete.calls() == ["packages"]


def test_the_wheel_contains_the_product_and_the_laboratory_of_the_demo() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {
        "packages": ["autoscaler", "lab"],
        "shared-data": {"share": "share"},
    }
