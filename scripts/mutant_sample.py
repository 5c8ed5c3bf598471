"""Mutation testing by samples, of rooms that are too large to be mutated whole.

    python scripts/mutant_sample.py --sample N --rooms ROOM ... [--seed S] [--processes P]

Draws N changes of each room, the same ones for the same seed and code, and judges each in a copy of the
project below .cache/mutants: the tests that execute the changed statement run until one fails. At least
85 % are to be killed; each survivor is printed as docs/mutants.md lists them. A change that uses far more
CPU time than its tests do counts as timed out, which is as good as killed. Each result is kept at once,
so that a run that was interrupted goes on where it stopped. It never changes the checkout.
"""

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import resource
import runpy
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import coverage
import libcst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import create_mutations, deep_replace

ROOT = Path(__file__).parents[1]
WORK = ROOT / ".cache" / "mutants"
RESULTS = WORK / "sample.jsonl"
ENOUGH = 0.85
COPIED = ("autoscaler", "benchmarks", "docs", "examples", "scripts", "tests")
FILES = ("pyproject.toml", "README.md", "Makefile", ".importlinter", "uv.lock")
ALSO: dict[str, tuple[str, ...]] = {
    "controller": ("tests/server/test_boot_wave.py", "tests/app"),
    "server": ("tests/fuzz/test_found.py",),
    "providers": ("tests/app",),
}
"""Tests that look at a room besides those of its own folder."""

HANGS = 120
"""Real seconds after which a test that waits for what never happens has failed."""
SPARE = (20.0, 5.0)
"""CPU seconds, and factor: what a change's tests may use at most."""

_NO_VERDICT = (4, 5)  # pytest: a mistake in what was asked, no test found

PLUGIN = '''
"""Notes which test executes what, and how long each takes."""
import json
import coverage
took = {}
def pytest_runtest_logstart(nodeid, location):
    coverage.Coverage.current().switch_context(nodeid)
def pytest_runtest_logreport(report):
    took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
def pytest_sessionfinish():
    with open("took.json", "w") as file:
        json.dump(took, file)
'''


@dataclass(frozen=True)
class Change:
    """A change of one file: `span` are the first and last line of the changed statement."""

    room: str
    path: str
    source: str
    text: str
    span: tuple[int, int]

    @property
    def key(self) -> str:
        """The same for the same change of the same file."""
        return hashlib.sha256(f"{self.path}\0{self.source}\0{self.text}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        """As docs/mutants.md lists it."""
        lines = difflib.unified_diff(self.source.splitlines(), self.text.splitlines(), n=0)
        marked = [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
        return "\n".join([f"@@ {self._function()}", *(x[0] + x[1:].strip() for x in marked)])

    def _function(self) -> str:
        module = self.path.removesuffix(".py").replace("/", ".").partition(".")[2]
        names, body = [], ast.parse(self.source).body
        while found := [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.lineno <= self.span[0] <= (node.end_lineno or 0)
        ]:
            names.append(found[0].name)
            body = found[0].body
        return ".".join([module, *names])


def draw(room: str, count: int, seed: int) -> list[Change]:
    """Some of the changes that mutmut knows of the functions of a room."""
    files = []
    every: list[tuple[int, Any]] = []
    for file in sorted((ROOT / "autoscaler" / room).rglob("*.py")):
        source = file.read_text()
        module, mutations, _, _ = create_mutations(str(file), source)
        places = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
        every += [(len(files), one) for one in mutations if one.contained_by_top_level_function]
        files.append((str(file.relative_to(ROOT)), source, module, places))
    some = random.Random(f"{seed} {room}").sample(every, min(count, len(every)))
    print(f"{room}: {len(some)} of {len(every)} changes", flush=True)
    found = []
    for number, one in some:
        path, source, module, places = files[number]
        changed = deep_replace(module, one.original_node, one.mutated_node)
        assert isinstance(changed, libcst.Module)
        line = places[one.original_node].start.line
        span = _statements(source).get(line, (line, line))
        found.append(Change(room, path, source, changed.code, span))
    return found


def _statements(source: str) -> dict[int, tuple[int, int]]:
    """By line the innermost statement that it belongs to; a compound one without its body."""
    spans: dict[int, tuple[int, int]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            for line in range(node.lineno, last + 1):
                spans[line] = (node.lineno, max(last, node.lineno))
    return spans


class Reach:
    """Which tests execute which lines, quickest first."""

    def __init__(self, copy: Path, rooms: list[str]) -> None:
        self._copy = copy
        self.took: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(dict)
        for room in rooms:
            self._collect(room)

    def tests(self, change: Change) -> list[str]:
        """Those of the statement; where a process of its own executes it, all tests of its room."""
        first, last = change.span
        lines = self._lines[change.path]
        found = {test for at in range(first, last + 1) for test in lines.get(at, ()) if test}
        return sorted(found or self._own(change.room), key=lambda test: self.took.get(test, 0.0))

    def _own(self, room: str) -> set[str]:
        return {test for test in self.took if test.startswith(f"tests/{room}/")}

    def _collect(self, room: str) -> None:
        (self._copy / "mutant_reach.py").write_text(PLUGIN)
        source = f"--source=autoscaler/{room}"
        command = [sys.executable, "-m", "coverage", "run", source, "-m", "pytest", "-q"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "-p", "mutant_reach", *suite(room)],
            cwd=self._copy,
            env=environment(self._copy),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"error: the tests of {room} fail as it is:\n{done.stdout[-3000:]}")
        self.took |= json.loads((self._copy / "took.json").read_text())
        data = coverage.CoverageData(str(self._copy / ".coverage"))
        data.read()
        for file in data.measured_files():
            path = str(Path(file).relative_to(self._copy))
            for line, tests in data.contexts_by_lineno(file).items():
                self._lines[path].setdefault(line, set()).update(tests)


def suite(room: str) -> list[str]:
    """The tests of a room."""
    return [f"tests/{room}", *ALSO.get(room, ())]


def environment(copy: Path) -> dict[str, str]:
    """For processes that run in a copy."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}


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


def judge(change: Change, copy: Path, tests: list[str], estimate: float) -> tuple[str, float]:
    """What came of a change, and the CPU seconds that took."""
    if not tests:
        return "survived", 0.0
    file = copy / change.path
    at = file.stat().st_mtime
    constant, factor = SPARE
    bound = int(constant + factor * estimate)
    listed = copy / "tests.txt"
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["--hypothesis-profile=mutants", f"--timeout={HANGS}", f"@{listed}"]
    file.write_text(change.text)
    # Python knows compiled code by the second of its source: each change has a second of its own.
    os.utime(file, (at + 2, at + 2))
    try:
        with subprocess.Popen(
            command,
            cwd=copy,
            env=environment(copy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (bound, bound + 5)),
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        file.write_text(change.source)
        os.utime(file, (at + 4, at + 4))
    if process.returncode in _NO_VERDICT:
        raise SystemExit(f"error: pytest ended with {process.returncode} for\n{change}")
    if process.returncode < 0:
        return "timeout", used.ru_utime + used.ru_stime
    return ("killed" if process.returncode else "survived"), used.ru_utime + used.ru_stime


def run(drawn: list[Change], reach: Reach, copies: list[Path], known: dict[str, Any]) -> None:
    """Judge what was not judged yet, and keep each result at once."""
    free: Queue[Path] = Queue()
    for copy in copies:
        free.put(copy)
    left = [change for change in drawn if change.key not in known]
    done = len(drawn) - len(left)

    def one(change: Change) -> tuple[Change, str, float]:
        copy = free.get()
        try:
            tests = reach.tests(change)
            estimate = sum(reach.took.get(test, 0.0) for test in tests)
            return change, *judge(change, copy, tests, estimate)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool, RESULTS.open("a") as file:
        try:
            for change, result, cpu in pool.map(one, left):
                done += 1
                known[change.key] = {"key": change.key, "result": result, "cpu": round(cpu, 1)}
                file.write(json.dumps(known[change.key]) + "\n")
                file.flush()
                print(f"{done}/{len(drawn)} {change.room} {result} {cpu:.1f} s", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def report(drawn: list[Change], known: dict[str, Any], listed: set[Any]) -> int:
    """A table, and the survivors that docs/mutants.md does not list; 1 if too many survived."""
    status = 0
    print(
        f"\n{'room':14}{'mutants':>9}{'killed':>9}{'timeout':>9}{'survived':>9}{'share':>8}{'CPU s each':>12}"
    )
    for room in dict.fromkeys(change.room for change in drawn):
        own = [known[change.key] for change in drawn if change.room == room]
        counts = Counter(one["result"] for one in own)
        share = 1.0 - counts["survived"] / len(own)
        figures = "".join(f"{counts[word]:9}" for word in ("killed", "timeout", "survived"))
        each = sum(one["cpu"] for one in own) / len(own)
        print(f"{room:14}{len(own):9}{figures}{share:8.1%}{each:12.1f}")
        status |= share < ENOUGH
    for change in drawn:
        if known[change.key]["result"] == "survived" and str(change) not in listed:
            print(f"\nsurvived:\n{change}")
    return status


def main() -> int:
    """1 if less than 85 % of a room's changes were killed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, required=True, metavar="N", help="of each room")
    parser.add_argument("--rooms", nargs="+", required=True, metavar="ROOM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    drawn = [one for room in asked.rooms for one in draw(room, asked.sample, asked.seed)]
    WORK.mkdir(parents=True, exist_ok=True)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = {one["key"]: one for one in map(json.loads, lines)}
    copies = [prepared(f"sample-{number}") for number in range(asked.processes)]
    print("running the tests once, to see which of them reach what", flush=True)
    reach = Reach(copies[0], asked.rooms)
    try:
        run(drawn, reach, copies, known)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on here")
        return 130
    survivors = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))["listed"]
    listed = {str(one) for one in survivors((ROOT / "docs" / "mutants.md").read_text())}
    return report(drawn, known, listed)


if __name__ == "__main__":
    sys.exit(main())
