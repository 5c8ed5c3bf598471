"""The `python3` of lab machines: how it runs programs, and which disk they find."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.machines.image import Image, set_free_space
from lab.machines.machine_python import lab_disk_usage, lab_statvfs


@pytest.fixture
def python(open_folder: Path) -> Path:
    return Image(open_folder / "image", b"", baked=False, scale=1.0).bin / "python3"


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_program_finds_its_arguments_and_a_python_that_is_the_machines_own(
    python: Path, open_folder: Path
) -> None:
    program = open_folder / "program.py"
    program.write_text(
        '"""It."""\nfrom __future__ import annotations\nimport sys\n'
        "print(__name__, __file__, sys.argv, sys.executable, __doc__)\n"
        "class Own: pass\nassert sys.modules[Own.__module__].Own is Own\n"
    )
    expected = f"__main__ {program} {[str(program), '-S', 'x']} {python} It.\n"
    assert output_of(python, "-I", "-S", program, "-S", "x") == expected
    assert output_of(python, "-I", program, "-S", "x") == expected
    code = "import sys; print(__name__, sys.argv, 'site' in sys.modules)"
    assert output_of(python, "-I", "-S", "-c", code, "-I") == "__main__ ['-c', '-I'] False\n"


def test_a_program_that_exits_with_a_status_ends_python_with_it(python: Path) -> None:
    done = subprocess.run([python, "-c", "raise SystemExit(3)"], check=False)
    assert done.returncode == 3


def test_the_nearest_disk_of_the_lab_answers_and_the_hosts_answers_for_other_paths(
    open_folder: Path,
) -> None:
    inside = open_folder / "machine" / "home"
    inside.mkdir(parents=True)
    statvfs = lab_statvfs(os.statvfs)
    host = os.statvfs(inside)
    assert statvfs(str(inside)).f_blocks == host.f_blocks
    set_free_space(open_folder, 1.0)
    set_free_space(open_folder / "machine", 250.0)
    found = statvfs(str(inside))
    assert found.f_bavail * found.f_frsize == 250 * 2**30
    assert found.f_favail == 250 * 2**30 // 16_384
    assert statvfs("/").f_blocks == os.statvfs("/").f_blocks


def test_the_lab_gives_windows_machines_their_disk_too(open_folder: Path) -> None:
    usage = lab_disk_usage(shutil.disk_usage, lambda total, used, free: (total, used, free))
    assert usage(str(open_folder)) == shutil.disk_usage(open_folder)
    set_free_space(open_folder, 2.0)
    assert usage(str(open_folder / "Users")) == (2**31, 0, 2**31)
