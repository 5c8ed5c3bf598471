"""What is made of mutation testing's results, and the list of survivors in docs/mutants.md."""

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))
Mutant, listed, verdict = SCRIPT["Mutant"], SCRIPT["listed"], SCRIPT["verdict"]

LESS = Mutant("planner.assignments.assignments", ("if a < b:",), ("if a <= b:",))
MORE = Mutant("planner.assignments.assignments", ("if a < b:",), ("if a > b:",))
GONE = Mutant("planner.supply.FleetSupply.take", ("x = 1", "y = 2"), ())
OTHER = Mutant("ledger.launch_requests.bind", ("pass",), ("raise",))

DOCUMENT = """
They are the same, for a is never b.

```diff
@@ planner.assignments.assignments
-    if a < b:
+    if a <= b:
or
+    if a > b:
@@ planner.supply.FleetSupply.take
-    x = 1
-    y = 2
```
"""

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


def test_the_list_is_read_from_the_blocks_of_a_document() -> None:
    assert listed(DOCUMENT) == [LESS, MORE, GONE]


def test_a_list_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a line of a change: 'what'"):
        listed("```diff\n@@ planner.assignments.assignments\n-a\n+b\nwhat\n```\n")


def test_all_is_well_where_every_survivor_is_listed() -> None:
    killed = {Mutant("planner.assignments.f", (str(n),), ()): "killed" for n in range(9)}
    results = {**killed, LESS: "survived", OTHER: "timeout"}
    assert verdict(results, [LESS], ["ledger", "planner"]) == []


@pytest.mark.parametrize(
    ("known", "wrong"),
    [
        (
            [],
            "survived and is not in mutants.md:\n@@ planner.assignments.assignments\n-if a < b:\n+if a <= b:",
        ),
        ([LESS, MORE], "killed and yet in mutants.md:\n@@ planner.assignments.assignments"),
        (
            [LESS, Mutant("planner.assignments.f", ("gone",), ())],
            "in mutants.md and no mutant any more:\n@@ planner.assignments.f\n-gone",
        ),
    ],
)
def test_a_list_that_says_something_else_is_wrong(known: list[Any], wrong: str) -> None:
    (found,) = verdict({LESS: "survived", MORE: "killed"}, known, [])
    assert found.startswith(wrong)


def test_what_is_listed_of_modules_that_were_not_run_is_no_matter() -> None:
    assert verdict({MORE: "killed"}, [GONE, OTHER], []) == []


def test_each_room_needs_nine_of_ten_killed() -> None:
    eight = {Mutant("planner.assignments.f", (str(n),), ()): "killed" for n in range(8)}
    results = {**eight, LESS: "survived", OTHER: "killed"}
    assert verdict(results, [LESS], ["ledger", "planner"]) == ["planner: 88.9% killed, 90% wanted"]


def test_results_are_read_from_what_mutmut_leaves(tmp_path: Path) -> None:
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


def lines_of(function: str) -> set[str]:
    """The lines of a function, without their indentation. Raises LookupError if it does not exist."""
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
        node = next(x for x in ast.iter_child_nodes(node) if getattr(x, "name", "") == name)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return {line.strip() for line in source.splitlines()[node.lineno - 1 : node.end_lineno]}


def test_every_survivor_that_is_listed_is_a_change_of_today_s_code() -> None:
    for mutant in listed((ROOT / "docs" / "mutants.md").read_text()):
        assert lines_of(mutant.function).issuperset(mutant.before), str(mutant)
