"""What is made of mutation testing's results, and the list of survivors in docs/mutants.yaml."""

import ast
import json
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
try:
    SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))
    LIST: dict[str, Any] = vars(sys.modules.pop("mutant_survivors"))
finally:
    sys.path.remove(str(ROOT / "scripts"))
Mutant, verdict = SCRIPT["Mutant"], SCRIPT["verdict"]
Survivor, change, listed = LIST["Survivor"], LIST["change"], LIST["listed"]

LESS = Mutant("planner.assignments.assignments", ("if a < b:",), ("if a <= b:",))
MORE = Mutant("planner.assignments.assignments", ("if a < b:",), ("if a > b:",))
ALIKE = Mutant("planner.assignments.assignments", ("if b < c:",), ("if b <= c:",))
GONE = Mutant("planner.supply.FleetSupply.take", ("x = 1", "y = 2"), ())
OTHER = Mutant("ledger.slots.bind", ("pass",), ("raise",))

ENTRIES = [
    {
        "heading": "Equal",
        "reason": "They are the same, for a is never b.\n",
        "changes": {
            "planner.assignments.assignments": ["< -> <=", "< -> >"],
            "planner.supply.FleetSupply.take": ["x = 1 y = 2 -> (nothing)"],
        },
    },
    {"reason": "So are these.", "changes": {"planner.supply.FleetSupply.take": ["1 -> 2"]}},
]


def known(*mutants: Any) -> Counter[Any]:
    return Counter(mutant.survivor for mutant in mutants)


def test_the_copy_contains_every_module_that_its_tests_import(tmp_path: Path) -> None:
    """Otherwise, `make mutants` ends before the first mutant."""
    SCRIPT["prepare"](tmp_path / "work")
    work = tmp_path / "work"
    imported = {
        node.module
        for path in work.glob("tests/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    ours = {name for name in imported if name.partition(".")[0] in ("tests", "lab", "autoscaler")}
    assert {"tests.ledger.builders", "autoscaler.model.plan"} <= ours
    files = {name: work / name.replace(".", "/") for name in ours}
    absent = [n for n, at in files.items() if not (at.is_dir() or at.with_suffix(".py").exists())]
    assert absent == []


GENERATED = """
def x_f__mutmut_orig(a):
    b = (
        a + 1
    )
    return b


def x_f__mutmut_1(a):
    b = (
        a - 1
    )
    return b


def x_f__mutmut_2(a):
    b = None
    return b


class C:
    def xǁCǁg__mutmut_orig(self):
        return 1

    def xǁCǁg__mutmut_1(self):
        return 2
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("return min(2.0 ** min(n, 16), 9)", "return min(2.0 ** min(n, 17), 9)", "16 -> 17"),
        ("wait = 10.0", "wait = 11.0", "10.0 -> 11.0"),
        ("if a >= b:", "if a > b:", ">= -> >"),
        ("x = a // 60", "x = a / 60", "// -> /"),
        ("x.pop(key, None)", "x.pop(key, )", "None -> (nothing)"),
        ("f(a, b=c)", "f(a)", ", b = c -> (nothing)"),
        ("if is_it(one):", "if not is_it(one):", "if -> if not"),
        ("code = text.partition(x)", "code = text.rpartition(x)", ".partition -> .rpartition"),
        (
            "run = names.get(it.name) if it.name is not None else None",
            "run = names.get(it.name) if (it.name is not None) or True else None",
            "if … -> if (…) or True",
        ),
        ('say("no room", a)', 'say("NO ROOM", a)', '"no room" -> "NO ROOM"'),
        ("placement = self.current.get(sku)", "placement = None", "self.current.get(sku) -> None"),
    ],
)
def test_only_the_changed_part_of_a_line_is_shown(before: str, after: str, expected: str) -> None:
    assert change((before,), (after,)) == expected
    assert change(("first", *before.split(), "last"), ("first", after, "last")) == expected


def test_survivors_are_listed_by_function_and_change() -> None:
    also = Survivor("planner.supply.FleetSupply.take", "1 -> 2")
    assert listed(ENTRIES) == known(LESS, MORE, GONE) + Counter([also])


@pytest.mark.parametrize(
    ("reason", "changes", "error"),
    [
        ("They are the same.", ["what"], "planner.a.b: not a change such as `16 -> 17`: 'what'"),
        (" ", ["1 -> 2"], "no reason: "),
    ],
)
def test_a_list_that_cannot_be_read_is_an_error(
    reason: str, changes: list[str], error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        listed([{"reason": reason, "changes": {"planner.a.b": changes}}])


def test_the_page_lists_the_survivors_with_their_reasons() -> None:
    assert LIST["written"](f"# Mutants\n\n{LIST['BEGIN']}old", ENTRIES) == (
        f"# Mutants\n\n{LIST['BEGIN']}\n### Equal\n\nThey are the same, for a is never b.\n\n"
        "- `planner.assignments.assignments`: `< -> <=`, `< -> >`\n"
        "- `planner.supply.FleetSupply.take`: `x = 1 y = 2 -> (nothing)`\n\n"
        "So are these.\n\n- `planner.supply.FleetSupply.take`: `1 -> 2`\n"
    )


def test_the_mutants_page_matches_the_list() -> None:
    page = LIST["PAGE"].read_text()
    assert LIST["written"](page, LIST["entries"]()) == page, "run `make pages`"


def test_a_complete_list_of_survivors_passes() -> None:
    killed = {Mutant("planner.assignments.f", (str(n),), ()): "killed" for n in range(9)}
    results = {**killed, LESS: "survived", OTHER: "timeout"}
    assert verdict(results, known(LESS), ["ledger", "planner"]) == []


@pytest.mark.parametrize(
    ("expected", "wrong"),
    [
        (
            [],
            "survived and is not in mutants.yaml:\n@@ planner.assignments.assignments\n-if a < b:\n+if a <= b:"
            "\nplanner.assignments.assignments: ['< -> <=']",
        ),
        (
            [LESS, MORE],
            "killed and yet in mutants.yaml:\nplanner.assignments.assignments: ['< -> >']",
        ),
        (
            [LESS, LESS],
            "once and yet in mutants.yaml:\nplanner.assignments.assignments: ['< -> <=']",
        ),
        (
            [LESS, Mutant("planner.assignments.f", ("gone",), ())],
            "in mutants.yaml and no mutant any more:\nplanner.assignments.f: ['gone -> (nothing)']",
        ),
    ],
)
def test_a_wrong_list_of_survivors_fails(expected: list[Any], wrong: str) -> None:
    (found,) = verdict({LESS: "survived", MORE: "killed"}, known(*expected), [])
    assert found == wrong


def test_of_two_changes_that_read_alike_both_are_listed_if_both_survive() -> None:
    survived, killed = {LESS: "survived", ALIKE: "survived"}, {LESS: "survived", ALIKE: "killed"}
    assert verdict(survived, known(LESS, ALIKE), []) == []
    assert len(verdict(survived, known(LESS), [])) == 2
    assert verdict(killed, known(LESS), []) == []
    (found,) = verdict(killed, known(LESS, ALIKE), [])
    assert found.startswith("killed and yet in mutants.yaml")


def test_listed_survivors_of_modules_that_were_not_run_are_ignored() -> None:
    assert verdict({MORE: "killed"}, known(GONE, OTHER), []) == []


def test_each_room_needs_nine_of_ten_killed() -> None:
    eight = {Mutant("planner.assignments.f", (str(n),), ()): "killed" for n in range(8)}
    results = {**eight, LESS: "survived", OTHER: "killed"}
    wrong = verdict(results, known(LESS), ["ledger", "planner"])
    assert wrong == ["planner: 88.9% killed, 90% wanted"]


def test_results_are_read_from_mutmuts_files(tmp_path: Path) -> None:
    folder = tmp_path / "mutants" / "autoscaler" / "planner"
    folder.mkdir(parents=True)
    (folder / "assignments.py").write_text(GENERATED)
    codes = {"x_f__mutmut_1": 0, "x_f__mutmut_2": 1, "xǁCǁg__mutmut_1": 36}
    keys = {f"autoscaler.planner.assignments.{name}": code for name, code in codes.items()}
    (folder / "assignments.py.meta").write_text(json.dumps({"exit_code_by_key": keys}))
    assert SCRIPT["read_results"](tmp_path) == {
        Mutant("planner.assignments.f", ("a + 1",), ("a - 1",)): "survived",
        Mutant("planner.assignments.f", ("b = (", "a + 1", ")"), ("b = None",)): "killed",
        Mutant("planner.assignments.C.g", ("return 1",), ("return 2",)): "timeout",
    }


def lines_of(function: str) -> list[str]:
    """The lines of a function. Raises LookupError if it does not exist."""
    words = function.split(".")
    for count in range(len(words) - 1, 0, -1):
        module = ROOT.joinpath("autoscaler", *words[:count]).with_suffix(".py")
        if module.exists():
            break
    else:
        raise LookupError(function)
    source = module.read_text()
    node: ast.AST = ast.parse(source)
    for name in words[count:]:
        named = (x for x in ast.iter_child_nodes(node) if getattr(x, "name", "") == name)
        if (found := next(named, None)) is None:
            raise LookupError(function)
        node = found
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return source.splitlines()[node.lineno - 1 : node.end_lineno]


def test_every_survivor_that_is_listed_is_a_change_of_today_s_code() -> None:
    survivors = listed(LIST["entries"]())
    assert len(survivors) > 50
    for survivor in survivors:
        assert LIST["changes_of"](lines_of(survivor.function), survivor), str(survivor)


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("16 -> 17", True),
        ("min(n, 16) -> None", True),
        ("if … -> if (…) or True", True),
        ("(n, … else 0 -> (None, … else 1", True),
        ("6 -> 7", False),
        ("min(m, 16) -> None", False),
        ("-> 7", False),
        (" -> 7", False),
    ],
)
def test_a_listed_change_that_its_function_lacks_is_reported(text: str, possible: bool) -> None:
    lines = ["def of(n):", "    return min(", "        n, 16", "    ) if n is not None else 0"]
    assert LIST["changes_of"](lines, Survivor("planner.a.of", text)) is possible
