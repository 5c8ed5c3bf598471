"""The man page and the completion scripts, which the wheel installs."""

import shutil
import subprocess

import pytest
from hatchling.builders.wheel import WheelBuilder

from scripts.shell_files import COMMAND, ROOT, SHARE, shell_files


def test_the_files_are_those_of_the_commands() -> None:
    written = {
        str(one.relative_to(SHARE)): one.read_text() for one in SHARE.rglob("*") if one.is_file()
    }
    assert written == shell_files(), f"write them again: {COMMAND}"


def test_the_wheel_installs_them_where_man_and_the_shells_look() -> None:
    installed = WheelBuilder(str(ROOT)).config.shared_data
    assert installed == {str(SHARE): "share"}
    assert set(shell_files()) == {
        "man/man1/autoscaler.1",
        "bash-completion/completions/autoscaler",
        "zsh/site-functions/_autoscaler",
        "fish/vendor_completions.d/autoscaler.fish",
    }


def test_the_page_has_each_command_with_its_options() -> None:
    page = shell_files()["man/man1/autoscaler.1"]
    assert "\n.SS autoscaler store restore [OPTIONS] FILE\n" in page
    cost = page.partition("\n.SS autoscaler cost ")[2].partition("\n.SS ")[0]
    assert "\n\\fB\\-\\-last DAYS\\fR\nHow many days in UTC" in cost
    assert not [line for line in page.splitlines() if line.startswith("'")]


@pytest.mark.systems
def test_man_formats_the_page_without_a_warning() -> None:
    assert shutil.which("groff"), "apt-get install groff-base"
    page = SHARE / "man/man1/autoscaler.1"
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
