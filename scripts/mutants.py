"""Mutation testing of the pure rooms: does a test fail when a line of planner/ or ledger/ is wrong?

    python scripts/mutants.py [--processes N] [MODULE ...]        MODULE such as planner.shares
    python scripts/mutants.py --sample N --rooms ROOM ...         see mutant_sample.py

Copies the two rooms and their tests below .cache/mutants, lets mutmut change one thing at a time
there, and judges what came out: each room has at least 90 % of its mutants killed (one that makes
the tests run out of time or memory counts as killed), and each survivor stands with its reason in
docs/mutants.yaml, which lists no mutant that is killed. It never changes the checkout.
"""

import argparse
import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mutant_survivors import FILE, Survivor, change, entries, listed

ROOT = Path(__file__).parents[1]
WORK = ROOT / ".cache" / "mutants"
ROOMS = ("ledger", "planner")
TESTS = (*ROOMS, "model")
"""Folders of tests/ that are copied: those of the rooms, and what their tests import."""
ENOUGH = 0.9
MEMORY = 4 << 30
"""Bytes of address space: a mutant that never stops collecting ends by itself."""
SAY_EVERY = 30.0

_KILLED = (1, 3)  # pytest: a test failed; pytest itself broke
_OUT_OF_BOUNDS = (36, 24, -24, 152, 255, -9, 120)  # of time, or of memory
_SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f \n"
_NAME = re.compile(r"^autoscaler\.(\w+\.\w+)\.(?:x_(\w+?)|xǁ(\w+)ǁ(\w+?))__mutmut_(\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One change: of which function, and the lines before and after, without their indentation."""

    function: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def room(self) -> str:
        """planner or ledger."""
        return self.function.partition(".")[0]

    @property
    def module(self) -> str:
        """Module name such as planner.shares."""
        return ".".join(self.function.split(".")[:2])

    @property
    def survivor(self) -> Survivor:
        """As docs/mutants.yaml lists it."""
        return Survivor(self.function, change(self.before, self.after))

    def __str__(self) -> str:
        lines = [f"@@ {self.function}", *(f"-{x}" for x in self.before)]
        return "\n".join([*lines, *(f"+{x}" for x in self.after)])


def verdict(
    results: dict[Mutant, str], known: Counter[Survivor], rooms: Iterable[str]
) -> list[str]:
    """What is wrong with these results; nothing if all is well. `rooms` are those run in full."""
    wrong = []
    for room in rooms:
        outcomes = Counter(result for mutant, result in results.items() if mutant.room == room)
        share = 1.0 - outcomes["survived"] / outcomes.total()
        if share < ENOUGH:
            wrong.append(f"{room}: {share:.1%} killed, {ENOUGH:.0%} wanted")
    alike: dict[Survivor, list[Mutant]] = defaultdict(list)
    for mutant in sorted(results):
        alike[mutant.survivor].append(mutant)
    for survivor, mutants in alike.items():
        survived = [mutant for mutant in mutants if results[mutant] == "survived"]
        if len(survived) > known[survivor]:
            wrong += [f"survived and is not in {FILE.name}:\n{_shown(one)}" for one in survived]
        elif len(survived) < known[survivor]:
            others = ", ".join(sorted({results[mutant] for mutant in mutants} - {"survived"}))
            wrong.append(f"{others or 'once'} and yet in {FILE.name}:\n{_line(survivor)}")
    run = {mutant.module for mutant in results}
    gone = (x for x in known if ".".join(x.function.split(".")[:2]) in run and x not in alike)
    return wrong + [f"in {FILE.name} and no mutant any more:\n{_line(x)}" for x in sorted(gone)]


def _line(survivor: Survivor) -> str:
    return f"{survivor.function}: [{survivor.change!r}]"


def _shown(mutant: Mutant) -> str:
    return f"{mutant}\n{_line(mutant.survivor)}"


def read_results(work: Path) -> dict[Mutant, str]:
    """By mutant killed, timeout or survived, from mutmut's files; mutants that were not run do not appear.

    Two mutants that read alike are one, and survive if either does.
    """
    results: dict[Mutant, str] = {}
    for meta in sorted(work.glob("mutants/autoscaler/*/*.py.meta")):
        exits = json.loads(meta.read_text())["exit_code_by_key"]
        functions = _functions(meta.with_suffix("").read_text())
        for key, code in exits.items():
            if code is None:
                continue
            mutant = _mutant(key, functions)
            if results.get(mutant) != "survived":
                results[mutant] = _result(code)
    return results


def _result(code: int) -> str:
    if code in _KILLED:
        return "killed"
    return "timeout" if code in _OUT_OF_BOUNDS else "survived"


def _functions(source: str) -> dict[str, list[str]]:
    lines = source.splitlines()
    return {
        node.name: [line.strip() for line in lines[node.lineno : node.end_lineno]]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    }


def _mutant(key: str, functions: dict[str, list[str]]) -> Mutant:
    name = _NAME.match(key)
    if name is None:
        message = f"not a mutant's name: {key}"
        raise ValueError(message)
    module, function, owner, method, _ = name.groups()
    mutated = key.rpartition(".")[2]
    before = functions[re.sub(r"\d+$", "orig", mutated)]
    after = functions[mutated]
    start = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return Mutant(
        f"{module}.{function or f'{owner}.{method}'}",
        tuple(before[start : len(before) - end]),
        tuple(after[start : len(after) - end]),
    )


def prepare(work: Path) -> None:
    """A fresh copy of what mutmut needs."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "tests").mkdir(parents=True)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "autoscaler", work / "autoscaler", ignore=without)
    for name in ("__init__.py", "conftest.py"):
        shutil.copy2(ROOT / "tests" / name, work / "tests")
    for folder in TESTS:
        shutil.copytree(ROOT / "tests" / folder, work / "tests" / folder, ignore=without)
    shutil.copy2(ROOT / "pyproject.toml", work)


def run(work: Path, modules: list[str], processes: int) -> int:
    """Run mutmut there and print how far it is; its exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    names = [f"autoscaler.{module}.*" for module in modules]
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *names]
    # The order of tests, and with it who kills a mutant, is the same each time.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    ) as process:
        for line in _seldom(process.stdout or ()):
            print(line, flush=True)
    return process.returncode


def _seldom(lines: Iterable[str]) -> Iterator[str]:
    """Words once, and of the lines that count one in half a minute and the last."""
    said, words, waiting = time.monotonic(), "", ""
    for line in lines:
        counts = re.search(r"\d+/\d+ .*", line)
        if counts is not None:
            waiting = counts[0].strip()
            if time.monotonic() < said + SAY_EVERY:
                continue
        if waiting:
            yield waiting
            said, waiting = time.monotonic(), ""
        if counts is None and line.strip(_SPINNER) not in ("", words):
            words = line.strip(_SPINNER)
            yield words


def report(results: dict[Mutant, str]) -> str:
    """A table by module."""
    rows = [f"{'module':24}{'mutants':>9}{'killed':>9}{'timeout':>9}{'survived':>9}{'share':>8}"]
    modules = sorted({mutant.module for mutant in results})
    for part in (*modules, *ROOMS):
        own = Counter(r for m, r in results.items() if part in (m.module, m.room))
        if total := own.total():
            share = 1.0 - own["survived"] / total
            counts = f"{own['killed']:9}{own['timeout']:9}{own['survived']:9}"
            rows.append(f"{part:24}{total:9}{counts}{share:8.1%}")
    return "\n".join(rows)


def main() -> int:
    """Prepare, run, judge. 1 if something is wrong with the results, 2 if there are none."""
    if "--sample" in sys.argv:
        sample = str(Path(__file__).with_name("mutant_sample.py"))
        os.execv(sys.executable, [sys.executable, sample, *sys.argv[1:]])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only these")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    began = time.monotonic()
    prepare(WORK)
    status = run(WORK, asked.modules, asked.processes)
    results = read_results(WORK)
    if status or not results:
        print(f"error: mutmut ended with status {status} and {len(results)} results")
        return 2
    wrong = verdict(results, listed(entries()), () if asked.modules else ROOMS)
    print("\n\n".join([report(results), *wrong]))
    print(f"\n{len(wrong)} wrong, {(time.monotonic() - began) / 60:.0f} minutes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
