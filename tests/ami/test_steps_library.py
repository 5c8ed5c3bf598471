"""ami/linux/lib.sh, with package managers and servers that fail, hang or lie: stand-ins on the PATH."""

import hashlib
import os
import subprocess
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "ami" / "linux" / "lib.sh"

APT = """#!/bin/bash
# Does what $FOLDER/apt says, a line for each call; the last line also for every further call.
for word in "$@"; do case "$word" in update | install) action="$word" ;; esac; done
echo "$action" >> "$FOLDER/calls"
count=$(wc -l < "$FOLDER/calls")
line=$(sed -n "${count}p" "$FOLDER/apt")
case "${line:-$(tail -1 "$FOLDER/apt")}" in
  works) [[ "$action" == update ]] || echo "${@: -1}" >> "$FOLDER/installed" ;;
  fails) echo "E: Could not get lock" >&2; exit 100 ;;
  hangs) exec sleep 1000 ;;
  lies) ;;
esac
"""
DPKG_QUERY = """#!/bin/bash
grep -qx "${@: -1}" "$FOLDER/installed" && printf 'ii '
"""


class Shell:
    """Runs lines of bash after lib.sh, with stand-ins for apt-get and dpkg."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = {
            "apt-get": APT,
            "dpkg-query": DPKG_QUERY,
            "dpkg": '#!/bin/sh\necho "dpkg $*" >> "$FOLDER/repairs"\n',
        }
        (folder / "bin").mkdir()
        (folder / "installed").touch()
        for name, text in programs.items():
            program = folder / "bin" / name
            program.write_text(text)
            program.chmod(0o755)

    def run(self, lines: str, *apt: str) -> tuple[int, list[str]]:
        """Run the lines; return the status and what they print. `apt` is what apt-get does, call by call.

        Only a call that hangs is stopped soon: on a busy host, another one may take longer than that.
        """
        (self.folder / "apt").write_text("\n".join(apt) + "\n")
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FOLDER": str(self.folder),
            "RETRY_DELAY": "0",
            "APT_SECONDS": "3" if "hangs" in apt else "100",
        }
        command = ["bash", "-euo", "pipefail", "-c", f'source "{LIBRARY}"\n{lines}']
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=self.folder
        )
        return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]

    def calls(self) -> list[str]:
        """What apt-get was called for."""
        return (self.folder / "calls").read_text().split()


def test_a_package_is_installed_at_the_first_try(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run("apt_install jq", "works") == (0, [])
    assert shell.calls() == ["update", "install"]


def test_a_lock_and_a_mirror_that_recover_cost_tries_only(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    status, lines = shell.run("apt_install jq", "fails", "works", "fails", "works")
    assert status == 0
    assert [line for line in lines if line.startswith("image-build")] == [
        "image-build: apt-get update ended with status 100, try 1 of 5",
        "image-build: apt-get install ended with status 100, try 1 of 3",
    ]


def test_a_mirror_that_stays_down_ends_the_step(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    status, lines = shell.run("apt_install jq", "fails")
    assert (status, shell.calls()) == (1, ["update"] * 5)
    assert lines[-1] == "image-build: error: apt-get update failed: is a mirror down?"


def test_an_installation_that_hangs_is_stopped_repaired_and_tried_again(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    status, lines = shell.run("apt_install jq", "works", "hangs", "works")
    assert (status, lines) == (
        0,
        ["image-build: apt-get install was stopped after 3 s, try 1 of 3"],
    )
    assert (tmp_path / "repairs").read_text() == "dpkg --configure -a\n" * 2


def test_an_installation_that_only_says_that_it_worked_ends_the_step(tmp_path: Path) -> None:
    status, lines = Shell(tmp_path).run("apt_install git jq", "works", "lies")
    assert (status, lines[-1]) == (1, "image-build: error: not installed: git jq")


def test_a_download_with_another_checksum_is_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    wrong = "0" * 64
    status, lines = Shell(tmp_path).run(f"fetch file://{tmp_path}/file {wrong} got", "works")
    found = hashlib.sha256(b"content").hexdigest()
    assert status == 1
    assert lines[-1].endswith(f"/file has the SHA-256 {found}, not {wrong}")
    assert not (tmp_path / "got").exists()


def test_a_download_is_tried_again_and_then_named(tmp_path: Path) -> None:
    status, lines = Shell(tmp_path).run(f"fetch file://{tmp_path}/none {'0' * 64} got", "works")
    assert status == 1
    assert sum("curl ended with status 37, try" in line for line in lines) == 5
    assert lines[-1] == f"image-build: error: cannot download file://{tmp_path}/none"


def test_checks_name_what_is_missing(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    status, lines = shell.run("need_command bash no-such-program", "works")
    assert (status, lines) == (1, ["image-build: error: missing programs: no-such-program"])
    status, lines = shell.run("need_free_gb / 99999999", "works")
    assert status == 1
    assert lines[0].endswith("MB left; needed: 99999999 GB")
