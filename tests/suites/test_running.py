"""The runner of the suites: every part runs even if one fails, and no process outlives it.

Shells play the parts.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from tests.suites.__main__ import run
from tests.suites.parts import Part, Suite
sys.exit(run(Suite({suite!r}), [{parts}], Path({logs!r}), silence={silence}))
"""
FLAKY = """
from pathlib import Path

def test_steady(): pass

def test_flaky():
    tries = Path({tries!r})
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    assert len(tries.read_text()) >= {passes_at}
"""


@dataclass
class Runner:
    """Starts the runner with parts of the test's own, in a process of its own."""

    folder: Path
    started: list[subprocess.Popen[str]]

    def start(
        self, *parts: str, suite: str = "everyone", silence: float = PATIENCE
    ) -> subprocess.Popen[str]:
        """Start it with parts in Python's words."""
        program = PROGRAM.format(
            suite=suite, parts=", ".join(parts), logs=str(self.folder / "logs"), silence=silence
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self.started.append(process)
        return process

    def finish(
        self, *parts: str, suite: str = "everyone", silence: float = PATIENCE
    ) -> tuple[int, str]:
        """Run it to its end and return its exit status and output."""
        process = self.start(*parts, suite=suite, silence=silence)
        output, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, output

    def left(self) -> list[list[str]]:
        """Return the command lines of all processes that have this test's folder in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and str(self.folder) in process.environ().get(
                    "MARK", ""
                ):
                    found.append(process.cmdline())
            except psutil.Error:
                continue
        return found


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setenv("MARK", str(tmp_path))
    made = Runner(tmp_path, [])
    yield made
    for process in made.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def shell(name: str, script: str, more: str = "") -> str:
    return f"Part({name!r}, ('bash', '-c', {script!r}){more})"


def summary(output: str) -> dict[str, str]:
    """The result of each part in the summary."""
    lines = output.partition("==> Summary\n")[2].splitlines()
    pattern = re.compile(r"(passed|FAILED|UNSTEADY|not run) (?:.* CPU )? *(\w+)(?::.*)?")
    return {found[2]: found[1] for line in lines if (found := pattern.fullmatch(line))}


def test_every_part_runs_once_and_has_a_line(runner: Runner) -> None:
    compute = "for ((i = 0; i < 400000; i++)); do :; done"
    status, output = runner.finish(shell("busy", compute), shell("idle", "echo done"))
    assert (status, summary(output)) == (0, {"busy": "passed", "idle": "passed"})
    used = {part: int(cpu) for cpu, part in re.findall(r" (\d+) s of CPU  (\w+)", output)}
    assert used["busy"] >= used["idle"] == 0
    assert (runner.folder / "logs" / "idle.log").read_text() == "done\n"


def test_a_failed_part_does_not_stop_the_others_and_shows_its_output(runner: Runner) -> None:
    status, output = runner.finish(
        shell("bad", "echo the cause; exit 3"), shell("good", "true"), shell("later", "true")
    )
    assert (status, summary(output)) == (1, {"bad": "FAILED", "good": "passed", "later": "passed"})
    assert "\nthe cause\n" in output
    assert output.endswith("\n0 passed, 1 failed\n")


def test_a_part_without_what_it_needs_does_not_run(runner: Runner) -> None:
    status, output = runner.finish(
        shell("build", "exit 1"), shell("use", "true", ", after='build'"), shell("other", "true")
    )
    assert (status, summary(output)) == (
        1,
        {"build": "FAILED", "use": "not run", "other": "passed"},
    )


def test_a_part_that_runs_alone_has_no_other_beside_it(runner: Runner) -> None:
    place = runner.folder / "place"
    alone = f"[[ -e {place}.in ]] && exit 1; touch {place}; sleep 0.5; rm {place}"
    beside = f"touch {place}.in; rm {place}.in; [[ ! -e {place} ]]"
    status, output = runner.finish(
        shell("first", alone, ", alone=True"), shell("second", beside), shell("third", beside)
    )
    assert status == 0, output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_parts_starts_no_other_and_leaves_no_process(
    runner: Runner, number: signal.Signals
) -> None:
    """One part has a child in a session of its own, which ignores all signals that a part may get.

    The third part may start as soon as no other runs.
    """
    fifo = runner.folder / "ready"
    os.mkfifo(fifo)
    deaf = (
        f"setsid bash -c 'trap \"\" INT TERM HUP; echo > {fifo}; while :; do sleep 1; done' & wait"
    )
    started = runner.start(
        shell("deaf", deaf),
        shell("sleeping", "exec sleep 1000"),
        shell("third", "true", ", alone=True"),
    )
    with fifo.open():
        os.kill(started.pid, number)
        output, _ = started.communicate(timeout=PATIENCE)
    assert started.returncode == 128 + number
    assert summary(output) == {"deaf": "FAILED", "sleeping": "FAILED", "third": "not run"}
    assert "deaf failed: it was stopped" in output
    assert runner.left() == []


def test_a_process_that_outlives_its_part_is_ended(runner: Runner) -> None:
    status, output = runner.finish(shell("leaving", "setsid sleep 1000 > /dev/null 2>&1 &"))
    assert (status, summary(output)) == (0, {"leaving": "passed"})
    assert runner.left() == []


def test_a_silent_part_is_ended_and_its_processes_are_named(runner: Runner) -> None:
    status, output = runner.finish(
        shell("silent", "sleep 1000; true"), shell("other", "true"), silence=0.5
    )
    assert (status, summary(output)) == (1, {"silent": "FAILED", "other": "passed"})
    assert "silent failed: it printed nothing for 0 s; its processes: sleep 1000" in output
    assert runner.left() == []


@pytest.mark.parametrize(
    ("suite", "passes_at", "result"),
    [("systems", 2, "UNSTEADY"), ("systems", 3, "FAILED"), ("everyone", 2, "FAILED")],
)
def test_a_failed_test_of_the_systems_has_a_second_try(
    runner: Runner, suite: str, passes_at: int, result: str
) -> None:
    test, tries = runner.folder / "test_flaky.py", runner.folder / "tries"
    test.write_text(FLAKY.format(tries=str(tries), passes_at=passes_at))
    part = f"Part('flaky', paths=({str(test)!r},), options=('--rootdir', {str(runner.folder)!r}))"
    status, output = runner.finish(part, suite=suite)
    assert (status, summary(output)) == (int(result == "FAILED"), {"flaky": result})
    assert len(tries.read_text()) == (2 if suite == "systems" else 1)
    assert "test_flaky.py::test_flaky" in output.partition("==> Summary\n")[2]
    assert re.search(r" s  test_flaky\.test_steady$", output, re.MULTILINE)
    if result == "UNSTEADY":
        assert "1 failed, 1 passed" in output.partition("==> UNSTEADY")[2]
        assert "1 passed" in output.partition("==> UNSTEADY")[2]


def test_a_part_that_pytest_could_not_read_has_no_second_try(runner: Runner) -> None:
    """Its second try would run the one file that failed, and none of the others."""
    test, tries = runner.folder / "test_import.py", runner.folder / "tries"
    test.write_text(
        f"from pathlib import Path\ntries = Path({str(tries)!r})\n"
        "assert tries.exists() or tries.touch()\n\ndef test_it(): pass\n"
    )
    part = f"Part('broken', paths=({str(test)!r},), options=('--rootdir', {str(runner.folder)!r}))"
    status, output = runner.finish(part, suite="systems")
    assert (status, summary(output)) == (1, {"broken": "FAILED"})


def test_a_closed_stdout_leaves_no_process(runner: Runner) -> None:
    started = runner.start(shell("first", "true"), shell("second", "setsid sleep 1000"))
    assert started.stdout is not None
    started.stdout.close()
    assert started.wait(PATIENCE) != 0
    assert runner.left() == []
