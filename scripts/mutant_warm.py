"""A pytest plugin of mutant_sample.py: collects a room's tests once and runs some of them in forks.

It reads requests from standard input, one JSON object a line, and writes an answer to the file
descriptor in `MUTANT_ANSWERS`:

    {"reach": FILE, "modules"}  runs all tests, writes to FILE which test executes which lines
    {"path", "source", "text", "tests", "bounds", "asleep", "modules"}
                                runs the tests with the changed file until one fails, each for its
                                `bounds` CPU seconds and `asleep` real seconds of sleep at most; `modules`
                                are imported before
    {"tests", "modules"}        runs the tests without any change until one fails
    {"using": FIXTURE}          names the tests that use a fixture

A fork has everything imported. It replaces the code of the functions that live in memory; the file
itself is changed too, for the processes that tests start.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
from mutant_processes import end_all, wait

HERE = Path.cwd()
SUBREAPER = 36  # prctl(2), PR_SET_CHILD_SUBREAPER
KILLED, HANGS, UNPLANTED = 1, 2, 3
_SPAWNS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")


def _coverage() -> coverage.Coverage:
    # Without the settings in pyproject.toml, which name other packages and another concurrency.
    return coverage.Coverage(
        data_file=None,
        config_file=False,
        include=[f"{HERE}/autoscaler/*", f"{HERE}/dashboards/*"],
        concurrency=["thread"],
    )


class Warm:
    """Collects as pytest does, then serves requests in place of running the tests."""

    def __init__(self) -> None:
        self._imports = _coverage()
        self._imports.start()
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        self._answers = os.fdopen(int(os.environ["MUTANT_ANSWERS"]), "w")
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)
        self._failed = self._why = ""
        self._bounds: dict[str, float] = {}
        self._hung = False
        self._reach: FailureScope | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until the requests end."""
        self._imports.stop()
        if session.testsfailed:
            raise session.Interrupted("the tests could not be collected")
        items = {item.nodeid: item for item in session.items}
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._functions[one.__code__.co_filename].append(one)
        gc.collect()
        gc.freeze()
        for line in sys.stdin:
            self._answers.write(json.dumps(self._answer(items, json.loads(line))) + "\n")
            self._answers.flush()
        return True

    def _answer(self, items: dict[str, pytest.Item], asked: dict[str, Any]) -> dict[str, Any]:
        if "using" in asked:
            return {"tests": [x for x in items if asked["using"] in _fixtures(items[x])]}
        for name in asked.get("modules", ()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        said = HERE / "said.json"
        said.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            code = KILLED
            try:
                code = self._in_fork(items, asked, said)
            finally:  # Whatever was raised, a fork never goes on as its parent does.
                os._exit(code)
        ended, stopped = wait(child, asked["asleep"]) if "asleep" in asked else (True, False)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        end_all()
        found = json.loads(said.read_text()) if said.exists() else {}
        code = os.waitstatus_to_exitcode(status)
        found |= {"status": code if ended else HANGS, "cpu": used.ru_utime + used.ru_stime}
        return found | {"stopped": stopped}

    def _in_fork(self, items: dict[str, pytest.Item], asked: dict[str, Any], said: Path) -> int:
        void = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(void, number)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        if "reach" in asked:
            self._reach = FailureScope(self._imports)
            chosen = list(items.values())
        else:
            if "path" in asked and not self._planted(**asked):
                return UNPLANTED
            chosen = [items[name] for name in asked["tests"] if name in items]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed and self._reach is None:
                break
        said.write_text(json.dumps({"by": self._failed, "why": self._why}))
        if self._reach is not None:
            self._reach.write(Path(asked["reach"]))
        return HANGS if self._hung else KILLED if self._failed else 0

    def _planted(
        self, path: str, source: str, text: str, bounds: dict[str, float], **_: Any
    ) -> bool:
        self._bounds = bounds
        file = str(HERE / path)
        return plant(self._functions[file], file, source, text)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on, what is executed is this test's."""
        if self._reach is not None:
            self._reach.begin(nodeid)
        if nodeid in self._bounds:
            bound = math.ceil(time.process_time() + self._bounds[nodeid])
            resource.setrlimit(resource.RLIMIT_CPU, (bound, resource.RLIM_INFINITY))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """The test's CPU time, its processes' included."""
        if self._reach is not None:
            self._reach.end(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the test that failed, and how long each took."""
        if self._reach is not None:
            took = self._reach.took
            took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            if self._reach is not None:
                self._reach.failed.add(report.nodeid)
            self._failed = report.nodeid
            self._why = str(report.longrepr)[-2000:]
            self._hung = "Failed: Timeout (>" in str(report.longrepr)


class FailureScope:
    """Which test executes which lines, how long it takes, and whether it starts processes."""

    def __init__(self, imports: coverage.Coverage) -> None:
        self.took: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.failed: set[str] = set()
        self._imports = imports
        self._coverage = _coverage()
        self._test = ""
        self._began = 0.0
        self._spawn: set[str] = set()
        self._modules = set(sys.modules)
        sys.addaudithook(self._on_audit_event)
        self._coverage.start()

    def _on_audit_event(self, event: str, _: object) -> None:
        if event in _SPAWNS:
            self._spawn.add(self._test)

    def begin(self, test: str) -> None:
        """What is executed from here on is executed by this test."""
        self._test = test
        self._began = _cpu()
        self._coverage.switch_context(test)

    def end(self, test: str) -> None:
        """Note the CPU seconds since it began."""
        self.cpu[test] = _cpu() - self._began

    def write(self, file: Path) -> None:
        """Lines by file, with the tests of each; the test "" is the import of the modules."""
        self._coverage.stop()
        lines: dict[str, dict[int, list[str]]] = {}
        data = self._coverage.get_data()
        for path in data.measured_files():
            name = str(Path(path).relative_to(HERE))
            lines[name] = {
                line: [test for test in tests if test]
                for line, tests in data.contexts_by_lineno(path).items()
            }
        data = self._imports.get_data()
        for path in data.measured_files():
            own = lines.setdefault(str(Path(path).relative_to(HERE)), {})
            for line in data.lines(path) or ():
                own.setdefault(line, []).append("")
        loaded = sorted(set(sys.modules) - self._modules)
        modules = [name for name in loaded if name.partition(".")[0] not in ("autoscaler", "tests")]
        found = {
            "took": {x: took for x, took in self.took.items() if x not in self.failed},
            "cpu": self.cpu,
            "failed": sorted(self.failed),
            "lines": lines,
            "spawn": sorted(self._spawn),
            "modules": modules,
        }
        file.write_text(json.dumps(found))


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _cpu() -> float:
    return sum(os.times()[:4])


def plant(functions: list[FunctionType], file: str, source: str, text: str) -> bool:
    """Give functions that live in memory the code of the changed text; False if one cannot take it."""
    if not functions:
        return True  # no module of the tests has imported it yet
    before, after = (list(_codes(compile(x, file, "exec"))) for x in (source, text))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        # A lambda or a comprehension came or went: the code of the function around it holds it.
        before, after = ([x for x in y if "<" not in x.co_qualname] for y in (before, after))
    changed = {
        (old.co_qualname, old.co_firstlineno): new for old, new in zip(before, after, strict=True)
    }
    for one in functions:
        new = changed.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
        if new is not None:
            if new.co_freevars != one.__code__.co_freevars:
                return False
            one.__code__ = new
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Become the loop of this session, before anything of the project is imported."""
    early_config.pluginmanager.register(Warm(), "mutant-warm-loop")
