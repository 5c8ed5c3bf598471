"""The built wheel in an environment that can be copied, and a way to print what each step took."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.go_builds import UV
from tests.readme.commands import ROOT
from tests.readme.debian_host import PROGRAMS
from tests.readme.typist import Typist

SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the users of machines can reach."""
    with tempfile.TemporaryDirectory(prefix="first-fleet-") as made:
        path = Path(made)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `opt/autoscaler` is an environment with the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    folder.chmod(0o755)
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    environment = folder / "layer" / PROGRAMS
    # UV_LINK_MODE: the cache may be in another file system than the folder.
    variables = {**os.environ, "UV_LINK_MODE": "copy"}
    python = ("--no-managed-python", "--python", SYSTEM_PYTHON)
    install = ("--compile-bytecode", "--python", str(environment / "bin/python"), str(wheel))
    for words in (
        ("venv", "--quiet", "--relocatable", *python, str(environment)),
        ("pip", "install", "--quiet", *install),
    ):
        subprocess.run((UV, *words), env=variables, check=True)
    return folder / "layer"


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[str, Typist], None]:
    """Return what prints the steps of a way with their seconds, also if the test passes."""

    def print_report(way: str, typist: Typist) -> None:
        with capsys.disabled():
            print(f"\n{way}\n{typist.report()}")  # noqa: T201 - it is what this test shows

    return print_report
