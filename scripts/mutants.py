"""Runs mutmut and compares the mutants that survive with those that tests/mutants.yaml accepts.

    python scripts/mutants.py [MODULE ...]                 planner/ and ledger/, or only planner.shares
    python scripts/mutants.py --sample N --rooms ROOM ...  a random sample of larger rooms

A survivor is a function and what changes in it, without the unchanged rest of the lines. This stays true when
lines move or names beside it change. `…` stands for unchanged words inside a change.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "mutants.yaml"
WHOLE = {"ledger": 0.9, "planner": 0.9}  # the share of mutants that tests kill, at least
SAMPLED = 0.85

# A test failed, or pytest itself broke; out of time or memory; not judged, or interrupted.
_RESULTS = dict.fromkeys((1, 3), "killed")
_RESULTS |= dict.fromkeys((36, 24, -24, 152, 255, -9, 120), "timeout")
_NOT_JUDGED = (None, 2)
_NAME = re.compile(r"^autoscaler\.([\w.]+)\.(?:x_(\w+?)|xǁ(\w+)ǁ(\w+?))__mutmut_\d+$")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\d[\d_.]*|\w+|[-+*/<>=!:]=|//|\*\*|->|\S')
_ARROW = " -> "
_JOINED = re.compile(
    r"(?<=[(\[{.]) | (?=[)\]},:.])|(?<=\w)(?<!\bif)(?<!\bor)(?<!\band)(?<!\bnot) (?=[(\[])"
)
"""The blanks between tokens that Python's usual format does not have."""
_UNCHANGED = (
    3  # at least so many unchanged tokens in the middle of a change do not appear in its text
)


@dataclass(frozen=True, slots=True, order=True)
class Survivor:
    """A function such as planner.shares.of, and a change such as `< -> <=`."""

    function: str
    change: str

    def __str__(self) -> str:
        """As tests/mutants.yaml lists it."""
        return f"{self.function}: [{self.change!r}]"


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One change: of which function, and the lines before and after, without their indentation."""

    function: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def survivor(self) -> Survivor:
        """As tests/mutants.yaml lists it."""
        return Survivor(self.function, change(self.before, self.after))

    def __str__(self) -> str:
        lines = [f"@@ {self.function}", *(f"-{x}" for x in self.before)]
        return "\n".join([*lines, *(f"+{x}" for x in self.after)])


def tokens(lines: Iterable[str]) -> list[str]:
    """Return the words, numbers, texts and operators of these lines."""
    return _TOKEN.findall(" ".join(lines))


def change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return what differs between the lines before and after, such as `16 -> 17`."""
    old, new = tokens(before), tokens(after)
    start = _shared(old, new)
    end = min(_shared(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    old_end, new_end = len(old) - end, len(new) - end
    inserted = start == old_end or (new[start : start + 1] == ["("] != old[start : start + 1])
    if start and (inserted or old[start - 1] == "."):
        start -= 1  # The token before an insertion shows its place, and a dot that a name is an attribute.
    return _ARROW.join(_texts(old[start:old_end], new[start:new_end]))


def _shared(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _texts(old: list[str], new: list[str]) -> tuple[str, str]:
    parts: tuple[list[list[str]], list[list[str]]] = ([[]], [[]])
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" and b - a >= _UNCHANGED:
            parts[0].append([])
            parts[1].append([])
        else:
            parts[0][-1] += old[a:b]
            parts[1][-1] += new[c:d]
    return _text(parts[0]), _text(parts[1])


def _text(parts: list[list[str]]) -> str:
    text = " … ".join(" ".join(part) for part in parts)
    return _JOINED.sub("", text).strip() or "(nothing)"


def accepted(entries: Iterable[Mapping[str, Any]]) -> Counter[Survivor]:
    """Return how often each survivor is listed."""
    listed = (pair for entry in entries for pair in entry["changes"].items())
    return Counter(Survivor(function, one) for function, changes in listed for one in changes)


def read_results(work: Path, names: Iterable[str] | None = None) -> dict[Mutant, str]:
    """Return killed, timeout or survived by mutant, of those that mutmut judged in this folder.

    `names` selects some. Two mutants that read alike are one, and survive if either does.
    """
    asked = None if names is None else set(names)
    results: dict[Mutant, str] = {}
    for meta in sorted(work.glob("mutants/autoscaler/**/*.py.meta")):
        codes: dict[str, int] = json.loads(meta.read_text())["exit_code_by_key"]
        wanted = codes if asked is None else {key: codes[key] for key in asked & codes.keys()}
        judged = {key: code for key, code in wanted.items() if code not in _NOT_JUDGED}
        functions = _functions(meta.with_suffix("").read_text()) if judged else {}
        for key, code in judged.items():
            mutant = _mutant(key, functions)
            if results.get(mutant) != "survived":
                results[mutant] = _RESULTS.get(code, "survived")
    return results


def _functions(source: str) -> dict[str, list[str]]:
    lines = source.splitlines()
    return {
        node.name: [line.strip() for line in lines[node.lineno - 1 : node.end_lineno]]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _mutant(key: str, functions: dict[str, list[str]]) -> Mutant:
    name = _NAME.match(key)
    assert name is not None, key
    module, function, owner, method = name.groups()
    mutated = key.rpartition(".")[2]
    original = re.sub(r"\d+$", "orig", mutated)
    before = [line.replace(original, mutated) for line in functions[original]]  # its own name
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


def verdict(
    results: dict[Mutant, str], known: Counter[Survivor], goals: Mapping[str, float], *, whole: bool
) -> list[str]:
    """Return what is wrong with these results. `whole`: they have all mutants of their modules."""
    wrong = []
    for room, goal in goals.items():
        if (share := _counts(results, room)[1]) < goal:
            wrong.append(f"{room}: {share:.1%} killed, {goal:.0%} wanted")
    alike: dict[Survivor, list[Mutant]] = defaultdict(list)
    for mutant in sorted(results):
        alike[mutant.survivor].append(mutant)
    for survivor, mutants in alike.items():
        survived = [mutant for mutant in mutants if results[mutant] == "survived"]
        if len(survived) > known[survivor]:
            wrong += [f"survived and is not in {FILE.name}:\n{x}\n{survivor}" for x in survived]
        elif whole and len(survived) < known[survivor]:
            others = ", ".join(sorted({results[mutant] for mutant in mutants} - {"survived"}))
            wrong.append(f"{others or 'once'} and yet in {FILE.name}:\n{survivor}")
    run = {_module(mutant.function) for mutant in results} if whole else set()
    gone = sorted(x for x in known if _module(x.function) in run and x not in alike)
    return wrong + [f"in {FILE.name} and no mutant any more:\n{x}" for x in gone]


def _module(function: str) -> str:
    return ".".join(function.split(".")[:2])


def draw(room: str, count: int, seed: int, root: Path = ROOT) -> list[str]:
    """Return the names of `count` mutants. An edited function changes only its part of the draw."""
    names: list[str] = []
    for file in sorted((root / "autoscaler" / room).rglob("*.py")):
        path = file.relative_to(root)
        mutants = mutate_file_contents(str(path), file.read_text()).mutant_names
        names += (get_mutant_name(path, name) for name in mutants)
    return sorted(names, key=lambda x: hashlib.sha256(f"{seed} {x}".encode()).digest())[:count]


def prepare(room: str, root: Path = ROOT) -> Path:
    """Return a folder with the project's files and a configuration of mutmut for this room."""
    work = root / ".cache" / "mutants" / room
    work.mkdir(parents=True, exist_ok=True)
    text = (root / "pyproject.toml").read_text()
    tool = tomllib.loads(text)["tool"]
    own, samples = tool["mutmut"], tool["mutmut_samples"]
    for name in ("autoscaler", "tests", *own["also_copy"]):
        (work / name).unlink(missing_ok=True)
        (work / name).symlink_to(root / name)
    # mutmut copies no folders that are links, such as the console's runbooks.
    for link in (root / "autoscaler").rglob("*"):
        if link.is_symlink() and link.is_dir():
            shutil.copytree(link, work / "mutants" / link.relative_to(root), dirs_exist_ok=True)
    own["only_mutate"] = [f"autoscaler/{room}/*"]
    own["pytest_add_cli_args"] += samples["pytest_add_cli_args"]
    own["pytest_add_cli_args_test_selection"] = samples["tests"].get(room, [f"tests/{room}"])
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in own.items())
    section = re.compile(r"(?<=^\[tool\.mutmut\]\n).*?(?=^\[)", re.MULTILINE | re.DOTALL)
    (work / "pyproject.toml").write_text(section.sub(lambda _: f"{lines}\n", text))
    return work


def run(work: Path, processes: int, names: Sequence[str]) -> None:
    """Run mutmut in this folder. Raises: CalledProcessError if mutmut fails."""
    # 4 GiB of address space: a mutant that never stops collecting ends by itself.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    mutmut = Path(sys.executable).with_name("mutmut")
    # The order of tests, and with it the test that kills a mutant, is the same each time.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [mutmut, "run", "--max-children", str(processes), *names]
    subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, check=True)


def report(results: dict[Mutant, str]) -> str:
    """Return a line for each room."""
    rooms = sorted({mutant.function.partition(".")[0] for mutant in results})
    figures = {room: _counts(results, room) for room in rooms}
    return "\n".join(f"{x}: {share:.1%} killed, {dict(n)}" for x, (n, share) in figures.items())


def _counts(results: dict[Mutant, str], room: str) -> tuple[Counter[str], float]:
    counts = Counter(y for x, y in results.items() if x.function.startswith(f"{room}."))
    return counts, 1.0 - counts["survived"] / max(1, counts.total())


def main() -> int:
    """Run mutmut and judge its results. Return 1 if something is wrong with them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="of planner/ and ledger/")
    parser.add_argument("--sample", type=int, metavar="N", help="mutants of each room")
    parser.add_argument("--rooms", nargs="+", default=[], metavar="ROOM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    os.chdir(ROOT)  # mutmut reads the configuration of the current folder
    if bool(asked.sample) != bool(asked.rooms) or (asked.sample and asked.modules):
        parser.error("--sample and --rooms need each other, and no MODULE")
    results: dict[Mutant, str] = {}
    for room in asked.rooms:
        names = draw(room, asked.sample, asked.seed)
        work = prepare(room)
        run(work, asked.processes, names)
        results |= read_results(work, names)
    if not asked.rooms:
        run(ROOT, asked.processes, [f"autoscaler.{module}.*" for module in asked.modules])
        results = read_results(ROOT)
    if asked.modules:
        results = {x: y for x, y in results.items() if _module(x.function) in asked.modules}
    goals = dict.fromkeys(asked.rooms, SAMPLED) or ({} if asked.modules else WHOLE)
    known = accepted(yaml.safe_load(FILE.read_text()))
    wrong = verdict(results, known, goals, whole=not asked.rooms)
    print("\n\n".join([report(results), *wrong, f"{len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
