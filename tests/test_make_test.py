"""scripts/test.sh: every part runs even if one fails, and the summary names the failed parts.

A stand-in for `make` plays the parts.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE

SCRIPT = Path(__file__).parents[1] / "scripts" / "test.sh"
LINES = ["images", "laboratory", "worlds", "edges", "project", "programs"]
"""Each part starts after the parts before it in its line."""

PARTS = [
    "crowds",
    "lint",
    "types",
    "contracts",
    "rooms",
    "images",
    "laboratory",
    "services",
    "kills",
    "windows",
    "worlds",
    "edges",
    "project",
    "terraform",
    "programs",
    "cluster",
    "pods",
]
MAKE = """#!/bin/bash
part="${@: -1}"
echo "$part" >> "$CALLS"
echo "all of $part"
[[ "$part" != lint ]] || for ((i = 0; i < 400000; i++)); do :; done
case " $FAIL " in
  *" $part "*) echo "FAILED tests/$part/test_x.py::test_y - assert 1 == 2"; exit 2 ;;
esac
if [[ " $HANG " == *" $part "* ]]; then echo hanging > "$CALLS.$part"; exec sleep 1000; fi
"""


class Run:
    """One run of the script, with parts that fail or hang."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.programs = folder / "programs"
        self.programs.mkdir()
        make = self.programs / "make"
        make.write_text(MAKE)
        make.chmod(0o755)

    def start(self, fail: str = "", hang: str = "") -> subprocess.Popen[str]:
        path = f"{self.programs}:{os.environ['PATH']}"
        settings = {"PATH": path, "CALLS": str(self.calls), "FAIL": fail, "HANG": hang}
        return subprocess.Popen(
            [SCRIPT],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | settings,
            process_group=0,
        )

    def until_hanging(self, *parts: str) -> None:
        """Return once these parts hang."""
        subprocess.run(
            ["bash", "-c", 'for file; do until [[ -s "$file" ]]; do sleep 0.02; done; done', "-"]
            + [f"{self.calls}.{part}" for part in parts],
            check=True,
            timeout=PATIENCE,
        )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def summary(output: str) -> list[tuple[str, str]]:
    """The result and the part of each line of the summary."""
    lines = output.partition("==> Summary\n")[2].splitlines()
    return [(line.split()[0], line.split()[-1]) for line in lines]


def test_every_part_runs_once_and_their_output_is_shown(run: Run) -> None:
    done = run.start()
    output, _ = done.communicate(timeout=PATIENCE)
    assert done.returncode == 0
    assert sorted(run.calls.read_text().split()) == sorted(PARTS)
    assert run.calls.read_text().split()[0] == "crowds"
    assert summary(output) == [("passed", part) for part in PARTS]
    used = {part: int(cpu) for cpu, part in re.findall(r" s +(\d+) s of CPU  (\w+)", output)}
    # Only this part computes. Parts that end beside it do not count.
    assert used.pop("lint") > max(used.values())
    assert all(f"all of {part}\n" in output for part in PARTS)


def test_a_failed_part_does_not_stop_the_others_and_is_named(run: Run) -> None:
    done = run.start(fail="crowds lint laboratory")
    output, _ = done.communicate(timeout=PATIENCE)
    assert done.returncode == 1
    assert sorted(run.calls.read_text().split()) == sorted(PARTS)
    results = {part: result for result, part in summary(output) if part in PARTS}
    assert results == {
        part: "FAILED" if part in {"crowds", "lint", "laboratory"} else "passed" for part in PARTS
    }
    tail = output.partition("==> Summary\n")[2]
    assert tail.count("tests/laboratory/test_x.py::test_y - assert 1 == 2") == 1


def test_ctrl_c_ends_all_parts_and_starts_no_other(run: Run) -> None:
    started = run.start(hang=" ".join(["lint", *LINES]))
    run.until_hanging("lint", *LINES)
    os.killpg(started.pid, signal.SIGINT)
    output, _ = started.communicate(timeout=PATIENCE)
    assert started.returncode == 1
    later = {"contracts", "kills", "types", "windows", "terraform", "cluster", "pods", "services"}
    assert not later & set(run.calls.read_text().split())
    results = {part: result for result, part in summary(output)}
    assert {results[part] for part in sorted(later | {"rooms"})} == {"not"}
    assert {results[part] for part in ("lint", *LINES)} == {"FAILED"}
