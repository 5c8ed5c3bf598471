"""The sampler of mutants: a stable random sample, and results from the tests of a small project."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"

CODE = """
def double(a):
    return a + a


def unused(a):
    return a * 3


def table():
    return {"limit": int("7")}


TABLE = table()


class Counter:
    def __init__(self):
        self.count = 1

    def more(self, step=1):
        names = [n for n in range(self.count)]
        return len(names) + step
"""

TESTS = """
from pathlib import Path

from autoscaler.room import code
from autoscaler.room.code import double


def test_double():
    assert double(4) == 8
    assert not Path("now-it-fails").exists()


def test_table():
    assert code.TABLE == {"limit": 7}


def test_fails():
    assert code.unused(1) == 4


def test_counter():
    assert code.Counter().more() > 0
"""

CONFTEST = """
from hypothesis import settings

from autoscaler.room import code  # what it does at its import is judged as well

settings.register_profile("mutants", settings.get_profile("default"))
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    parts = ("changes", "processes", "room", "sample", "survivors", "warm")
    names = [f"mutant_{part}" for part in parts]
    yield {name.removeprefix("mutant_"): importlib.import_module(name) for name in names}
    for name in names:
        del sys.modules[name]


def project(folder: Path, code: str = CODE) -> Path:
    for package in ("autoscaler", "autoscaler/room", "tests", "tests/room"):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "autoscaler/room/code.py").write_text(code)
    (folder / "tests/room/test_code.py").write_text(TESTS)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def test_an_edited_function_changes_no_other_part_of_the_draw(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    draw = scripts["changes"].draw
    before, total = draw("room", 1000, 1, project(tmp_path / "one"))
    edited = CODE.replace("a * 3", "a * 3 + 1").replace("def double", "LINE = 1\n\n\ndef double")
    after, more = draw("room", 1000, 1, project(tmp_path / "two", edited))
    assert len(before) == total < len(after) == more
    kept = [change.key for change in before if "unused" not in str(change)]
    assert kept == [change.key for change in after if "unused" not in str(change)]
    assert [x.key for x in draw("room", 3, 1, tmp_path / "one")[0]] == [x.key for x in before[:3]]
    assert [x.key for x in draw("room", 1000, 2, tmp_path / "one")[0]] != [x.key for x in before]


def test_each_change_is_tested_by_the_tests_that_execute_it(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = project(tmp_path / "copy")
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(scripts["room"], "WORK", tmp_path / "work")
    drawn, _ = scripts["changes"].draw("room", 1000, 0, copy)
    room = scripts["room"].Room("room", copy)
    try:
        found = {str(change): room.judge(change) for change in drawn}
        assert room.failing({str(one["by"]) for one in found.values()}) == ""
        (copy / "now-it-fails").touch()
        assert room.failing({one["by"] for one in found.values()}).endswith("test_double")
    finally:
        room.close()
    results = {name: one["result"] for name, one in found.items()}
    assert (copy / "autoscaler/room/code.py").read_text() == CODE
    (added,) = (change for change in drawn if str(change).endswith("+return a - a"))
    assert added.survivor == scripts["survivors"].Survivor("room.code.double", "+ -> -")

    def of(function: str, after: str) -> Any:
        (name,) = (x for x in results if x.startswith(f"@@ {function}") and x.endswith(after))
        return found[name]

    assert of("room.code.double", "+return a - a")["result"] == "killed"
    assert of("room.code.double", "+return a - a")["by"].endswith("test_double")
    assert of("room.code.unused", "+return a / 3")["by"] == "no test executes it"
    assert of("room.code.table", '+return {"XXlimitXX": int("7")}')["result"] == "killed"
    # The tests' conftest.py cannot be imported with this change.
    assert of("room.code.table", '+return {"limit": int(None)}')["result"] == "killed"
    assert of("room.code.Counter.more", "step=2):")["result"] == "survived"
    assert of("room.code.Counter.more", "+return len(names) - step")["result"] == "killed"
    assert of("room.code.Counter.more", "range(None)]")["result"] == "killed"


def test_no_change_is_planted_before_the_tests_are_collected(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collecting imports the code: what is planted then would stay for all later changes."""
    copy = project(tmp_path / "copy")
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(scripts["room"], "WORK", tmp_path / "work")
    scripts["room"].Room("room", copy).close()
    (copy / "conftest.py").write_text(f"{CONFTEST}\nopen('collected', 'w').close()\n")
    room = scripts["room"].Room("room", copy)  # knows from the first which test executes what
    collected = (copy / "collected").exists()
    room.close()
    assert collected


def test_a_change_is_tested_again_if_its_process_was_stopped(
    scripts: dict[str, ModuleType],
) -> None:
    pauses = scripts["room"].PAUSES
    results = ["timeout", "killed", "survived"]

    class Stopped(scripts["room"].Room):  # type: ignore[misc]
        def __init__(self) -> None:
            self.stops = 1
            self.fork_stops = 0

        def _judge(self, _: object) -> dict[str, Any]:
            pauses._ticked -= self.stops * 60.0
            found = {"result": results.pop(0), "stopped": self.fork_stops > 0}
            self.stops = self.fork_stops = 0
            return found

    room = Stopped()
    assert room.judge(None) == {"result": "killed"}
    room.stops = 1
    assert room.judge(None) == {"result": "survived"}
    results += ["timeout", "killed"]
    room.fork_stops = 1
    assert room.judge(None) == {"result": "killed"}


def test_time_in_which_a_process_is_stopped_does_not_count(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = scripts["processes"]
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > 500.0:
            child.send_signal(signal.SIGCONT)
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert processes.wait(child.pid, 60.0) == (False, False)
        assert now < 100.0
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        stopped = processes.wait(child.pid, 60.0)
        child.kill()
        assert stopped == (True, True)


def test_a_survivor_is_tested_again_if_its_tests_changed(
    scripts: dict[str, ModuleType],
) -> None:
    judged = scripts["sample"]._judged
    survivor = {"result": "survived", "digest": "now", "seconds": 8.0}
    assert judged(survivor, "now", 8.0)
    assert not judged(survivor, "later", 8.0)
    assert not judged(survivor, "now", 9.0)
    assert judged({**survivor, "result": "killed"}, "later", 9.0)
    assert not judged(None, "now", 8.0)
