"""Judges changes of a room in a copy of the project, mostly in forks of one pytest process."""

import hashlib
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mutant_changes import PARTS, ROOT, Change, files

WORK = ROOT / ".cache" / "mutants"
SCRIPTS = Path(__file__).parent
COPIED = (
    "autoscaler",
    "benchmarks",
    "dashboards",
    "deploy",
    "docs",
    "examples",
    "scripts",
    "tests",
)
FILES = ("pyproject.toml", "README.md", "Makefile", ".importlinter", "uv.lock")
ALSO: dict[str, tuple[str, ...]] = {
    "controller": ("tests/server/test_boot_wave.py", "tests/app"),
    "server": ("tests/fuzz/test_found.py",),
    "console": ("tests/server/test_console.py",),
    "views": (
        "tests/controller/test_operator_holds.py",
        "tests/console/test_first_page.py",
        "tests/console/test_rendering.py",
        "tests/controller/test_recent_past.py",
        "tests/server/test_admin_endpoint.py",
        "tests/server/test_console.py",
        "tests/test_operator_queries.py",
    ),
    "dashboards": ("tests/dashboards",),
    "server_console": ("tests/server/test_console.py", "tests/server/test_console_fuzz.py"),
    "operators": (
        "tests/app/test_reloading.py",
        "tests/app/test_endpoints.py",
        "tests/config/test_credentials.py",
        "tests/controller/test_operator_holds.py",
        "tests/controller/test_reconfiguration.py",
        "tests/ledger/test_operator_holds.py",
        "tests/ledger/test_operator_requests.py",
        "tests/ledger/test_reclassify.py",
        "tests/planner/test_out_of_service.py",
        "tests/planner/test_rules.py",
        "tests/server/test_admin_endpoint.py",
        "tests/server/test_console.py",
        "tests/server/test_token_file.py",
        "tests/views/test_preview.py",
    ),
    "providers": (
        "tests/app",
        "tests/agent/test_user_data.py",
        "tests/config/test_contradictions.py",
        "tests/config/test_kubeconfigs.py",
        "tests/config/test_kubernetes_amounts.py",
        "tests/config/test_kubernetes_container_modes.py",
        "tests/config/test_kubernetes_contradictions.py",
        "tests/config/test_offerings.py",
        "tests/config/test_preflight.py",
        "tests/config/test_refused_skus.py",
        "tests/config/test_refused_values.py",
    ),
}
"""Tests that look at a room besides those of its own folder, and all tests of a part."""
SKIPPED_TESTS: dict[str, tuple[str, ...]] = {
    "controller": (
        "tests/controller/test_rule*.py",
        "tests/controller/test_healing.py",
        "tests/providers/test_ec2_hints.py",
    ),
    "console": ("tests/console/test_browser.py",),
}
"""Slow files of those tests: they judge no mutant, so one that only they would kill survives."""

WORKERS: dict[str, tuple[str, str]] = {
    "agent": ("autoscaler/agent/job_hook_programs.py", "machine"),
    "providers": ("autoscaler/providers/ec2/*operations.py", "worker"),
}
"""Files that another process executes, out of coverage's sight, and the fixture of the tests that start it."""

HANGS = 300
"""Real seconds after which a test has failed."""
SPARE = (3.0, 5.0)
"""CPU seconds, and factor: what a test may use with a change at most."""
ASLEEP = 60.0
"""Real seconds that a test's process may sleep, besides its usual time: then it waits for ever."""
LONGEST = 8.0
"""CPU seconds by default: tests of a change beyond this are skipped, the slowest first."""
FEW = 3
"""Tests that may fail without any change: a mutant is judged by the others."""
STOPPED = 5.0
"""Real seconds without a tick of this process after which it was stopped, or starved."""
OPTIONS = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", f"--timeout={HANGS}"]

_KILLED, _HANGS, _UNPLANTED = 1, 2, 3
_NO_VERDICT = (4, 5)  # pytest: a mistake in what was asked, no test found
_BROKEN_IMPORTS = ("ImportError while loading conftest", "found no collectors for")
"""What pytest prints, with status 4, if a conftest.py or a file of tests cannot be imported."""


class Room:
    """A copy of the project, and a pytest process there that has collected the tests of a room.

    It runs tests of `seconds` of CPU time for a change, the fastest first.
    """

    def __init__(self, name: str, copy: Path, seconds: float = LONGEST) -> None:
        self.name = name
        self._seconds = seconds
        self._copy = copy
        self._temporary = tempfile.mkdtemp(prefix="mutants-")
        reading, writing = os.pipe()
        self._log = (copy / f"{name}.log").open("w")
        command = [sys.executable, "-m", "pytest", *OPTIONS, "--capture=no", "-p", "mutant_warm"]
        ignored = [f"--ignore-glob={copy / pattern}" for pattern in SKIPPED_TESTS.get(name, ())]
        self._process = subprocess.Popen(
            [*command, f"--basetemp={self._temporary}/base", *suite(name), *ignored],
            cwd=copy,
            env={**environment(copy), "MUTANT_ANSWERS": str(writing)},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            text=True,
        )
        os.close(writing)
        self._answers = os.fdopen(reading)
        self._reach: dict[str, Any] = self._read_reach()
        self._elsewhere, fixture = WORKERS.get(name, ("", ""))
        # The answer also shows that the tests are collected: no change may be planted before.
        self._of_worker = set(self._ask(using=fixture)["tests"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate("")
        self._answers.close()
        self._log.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def judge(self, change: Change) -> dict[str, Any]:
        """Return what came of a change, by which test, and the CPU seconds that it took.

        Judges again if this process, pytest's or the fork was stopped meanwhile (SIGSTOP): a time
        limit has failed then.
        """
        while True:
            before = PAUSES.count()
            found = self._judge(change)
            stopped = found.pop("stopped", False) or PAUSES.count() > before
            if not stopped or found["result"] == "survived":
                return found

    def _judge(self, change: Change) -> dict[str, Any]:
        tests = self._tests(change)
        if not tests:
            return {"result": "survived", "cpu": 0.0, "by": "no test executes it"}
        constant, factor = SPARE
        bounds = {test: constant + factor * self._reach["cpu"][test] for test in tests}
        with _changed(self._copy / change.path, change):
            if "" in self._executing(change):  # executed by an import, too
                return _fresh(self._copy, tests, math.ceil(sum(bounds.values())))
            found = self._ask(
                path=change.path,
                source=change.source,
                text=change.text,
                tests=tests,
                bounds=bounds,
                asleep=ASLEEP + factor * sum(self._reach["took"][test] for test in tests),
                modules=self._reach["modules"],
            )
            if found["status"] == _UNPLANTED:
                return _fresh(self._copy, tests, math.ceil(sum(bounds.values())))
        why = found.get("why", "").strip().rpartition("\n")[2][-200:]
        return {
            "result": _result(found["status"]),
            "cpu": found["cpu"],
            "by": found.get("by", ""),
            "why": why,
            "stopped": found["stopped"],
        }

    def failing(self, tests: set[str]) -> str:
        """Return the first of the tests that fails without any change, or nothing."""
        took = self._reach["took"]
        known = sorted(tests & set(took), key=lambda test: (took[test], test))
        found = self._ask(tests=known, modules=self._reach["modules"])
        return str(found.get("by") or f"status {found['status']}") if found["status"] else ""

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answers.readline()
        if not answer:
            raise SystemExit(f"error: pytest of {self.name} ended, see {self._log.name}")
        return json.loads(answer)  # type: ignore[no-any-return]

    def _tests(self, change: Change) -> list[str]:
        """Those that execute the statement; if only an import does, all; else those that start processes."""
        took = self._reach["took"]
        executing = self._executing(change)
        if executing == {""}:
            executing |= set(took)
        if Path(change.path).match(self._elsewhere or "/"):
            executing |= self._of_worker
        found = (executing - {""}) & set(took) or set(self._reach["spawn"]) & set(took)
        chosen: list[str] = []
        total = 0.0
        for test in sorted(found, key=lambda test: (took[test], test)):
            total += self._reach["cpu"][test]
            if chosen and total > self._seconds:
                break
            chosen.append(test)
        return chosen

    def _executing(self, change: Change) -> set[str]:
        lines = self._reach["lines"].get(change.path, {})
        first, last = change.span
        return {test for at in range(first, last + 1) for test in lines.get(str(at), ())}

    def _read_reach(self) -> dict[str, Any]:
        file = WORK / f"reach-{self.name}-{digest(self.name, self._copy)}.json"
        if not file.exists():
            for old in WORK.glob(f"reach-{self.name}-*.json"):
                old.unlink()
            print(
                f"{self.name}: running its tests once, to see which of them execute what",
                flush=True,
            )
            reach, modules = self._copy / "reach.json", list[str]()
            failed = list[str]()
            for last in (False, True):
                # What the tests import is then imported already: on a busy host, that takes long.
                found = self._ask(reach=str(reach), modules=modules)
                if not reach.exists():
                    raise SystemExit(f"error: {self.name}: no test could be run: {found}")
                failed = json.loads(reach.read_text())["failed"]
                if last or len(failed) <= FEW:
                    break
                print(f"{self.name}: {len(failed)} tests fail, once more: {failed}", flush=True)
                modules += json.loads(reach.read_text())["modules"]
            if failed:
                print(f"{self.name}: fail without any change, so skipped: {failed}", flush=True)
            known = json.loads(reach.read_text())
            file.write_text(json.dumps({**known, "modules": modules + known["modules"]}))
        return json.loads(file.read_text())  # type: ignore[no-any-return]


class Pauses:
    """Counts how often this process did not run for a while."""

    def __init__(self) -> None:
        self._over = 0
        self._ticked = time.monotonic()
        threading.Thread(target=self._tick, daemon=True).start()

    def count(self) -> int:
        """How often until now, with a pause that ended a moment ago."""
        return self._over + (time.monotonic() - self._ticked > STOPPED)

    def _tick(self) -> None:
        while True:
            time.sleep(STOPPED / 10)
            self._over = self.count()
            self._ticked = time.monotonic()


PAUSES = Pauses()


def _fresh(copy: Path, tests: list[str], bound: int) -> dict[str, Any]:
    """The same in a new process, for what the import of a module executes."""
    listed, log = copy / "tests.txt", copy / "fresh.log"
    listed.write_text("\n".join(tests))
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", *OPTIONS, f"@{listed}"],
            cwd=copy,
            env={**environment(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (bound, bound + 5)),
        ) as process,
    ):
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    judged = process.returncode not in _NO_VERDICT or any(
        x in log.read_text() for x in _BROKEN_IMPORTS
    )
    if not judged:
        raise SystemExit(f"error: pytest ended with {process.returncode}, see {log}, for {tests}")
    killed = _result(process.returncode if process.returncode <= 0 else _KILLED)
    return {"result": killed, "cpu": used.ru_utime + used.ru_stime, "by": "a new process"}


def _result(status: int) -> str:
    if status == _HANGS or status < 0:
        return "timeout"
    return "killed" if status else "survived"


@contextmanager
def _changed(file: Path, change: Change) -> Iterator[None]:
    """Change the file, with a second of its own: Python knows compiled code by it."""
    at = file.stat().st_mtime
    file.write_text(change.text)
    os.utime(file, (at + 2, at + 2))
    try:
        yield
    finally:
        file.write_text(change.source)
        os.utime(file, (at, at))


def suite(room: str) -> list[str]:
    """The tests of a room."""
    own = () if room in PARTS else (f"tests/{room}",)
    return [*own, *ALSO.get(room, ())]


def digest(room: str, copy: Path) -> str:
    """Return another text once the room or one of its tests changed."""
    found = hashlib.sha256()
    for file in files(room, copy):
        found.update(file.read_bytes())
    for part in suite(room):
        path = copy / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def environment(copy: Path) -> dict[str, str]:
    """For processes that run in a copy."""
    return {**os.environ, "PYTHONPATH": f"{copy}:{SCRIPTS}", "PYTHONHASHSEED": "0"}


def prepared(name: str) -> Path:
    """A fresh copy of the project."""
    copy = WORK / name
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for folder in COPIED:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=without)
    for file in FILES:
        shutil.copy2(ROOT / file, copy)
    (copy / ".cache").mkdir()
    (copy / ".cache" / "npm").symlink_to(ROOT / ".cache" / "npm")
    return copy
