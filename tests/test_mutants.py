"""Samples of mutants, what is made of mutmut's results, and the accepted survivors in tests/mutants.yaml."""

import ast
import json
import runpy
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))
Mutant, Survivor, verdict = SCRIPT["Mutant"], SCRIPT["Survivor"], SCRIPT["verdict"]
LISTED: list[dict[str, Any]] = yaml.safe_load(SCRIPT["FILE"].read_text())
GOALS = {"ledger": 0.9, "planner": 0.9}

LESS = Mutant("planner.assignments.assignments", ("if a < b:",), ("if a <= b:",))
MORE = Mutant("planner.assignments.assignments", ("if a < b:",), ("if a > b:",))
ALIKE = Mutant("planner.assignments.assignments", ("if b < c:",), ("if b <= c:",))
GONE = Mutant("planner.supply.FleetSupply.take", ("x = 1", "y = 2"), ())
OTHER = Mutant("ledger.machines.slots.bind", ("pass",), ("raise",))

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


def x_f__mutmut_3(a):
    return a


class C:
    async def xǁCǁg__mutmut_orig(self, n=1):
        return 1

    async def xǁCǁg__mutmut_1(self, n=1):
        return 2

    async def xǁCǁg__mutmut_2(self, n=2):
        return 1
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
    change = SCRIPT["change"]
    assert change((before,), (after,)) == expected
    assert change(("first", *before.split(), "last"), ("first", after, "last")) == expected


def test_survivors_are_listed_by_function_and_change() -> None:
    also = Survivor("planner.supply.FleetSupply.take", "1 -> 2")
    assert SCRIPT["accepted"](ENTRIES) == known(LESS, MORE, GONE) + Counter([also])


def test_a_complete_list_of_survivors_passes() -> None:
    killed = {Mutant("planner.assignments.f", (str(n),), ()): "killed" for n in range(9)}
    results = {**killed, LESS: "survived", OTHER: "timeout"}
    assert verdict(results, known(LESS), GOALS, whole=True) == []


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
    (found,) = verdict({LESS: "survived", MORE: "killed"}, known(*expected), {}, whole=True)
    assert found == wrong


def test_of_two_changes_that_read_alike_both_are_listed_if_both_survive() -> None:
    survived, killed = {LESS: "survived", ALIKE: "survived"}, {LESS: "survived", ALIKE: "killed"}
    assert verdict(survived, known(LESS, ALIKE), {}, whole=True) == []
    assert len(verdict(survived, known(LESS), {}, whole=True)) == 2
    assert verdict(killed, known(LESS), {}, whole=True) == []
    (found,) = verdict(killed, known(LESS, ALIKE), {}, whole=True)
    assert found.startswith("killed and yet in mutants.yaml")


def test_listed_survivors_of_modules_that_were_not_run_are_ignored() -> None:
    assert verdict({MORE: "killed"}, known(GONE, OTHER), {}, whole=True) == []


def test_each_room_needs_nine_of_ten_killed() -> None:
    eight = {Mutant("planner.assignments.f", (str(n),), ()): "killed" for n in range(8)}
    results = {**eight, LESS: "survived", OTHER: "killed"}
    wrong = verdict(results, known(LESS), GOALS, whole=True)
    assert wrong == ["planner: 88.9% killed, 90% wanted"]


def test_a_sample_fails_for_a_new_survivor_only() -> None:
    results = {LESS: "survived", MORE: "killed"}
    assert verdict(results, known(LESS, MORE, GONE), {}, whole=False) == []
    (found,) = verdict(results, known(MORE), {"planner": 0.5}, whole=False)
    assert found.startswith("survived and is not in mutants.yaml")
    assert verdict(results, known(LESS), {"planner": 0.6}, whole=False) == [
        "planner: 50.0% killed, 60% wanted"
    ]


def test_results_are_read_from_mutmuts_files(tmp_path: Path) -> None:
    folder = tmp_path / "mutants" / "autoscaler" / "planner"
    folder.mkdir(parents=True)
    (folder / "assignments.py").write_text(GENERATED)
    codes = {
        "x_f__mutmut_1": 0,
        "x_f__mutmut_2": 1,
        "x_f__mutmut_3": None,
        "xǁCǁg__mutmut_1": 36,
        "xǁCǁg__mutmut_2": 33,
    }
    keys = {f"autoscaler.planner.assignments.{name}": code for name, code in codes.items()}
    (folder / "assignments.py.meta").write_text(json.dumps({"exit_code_by_key": keys}))
    read_results, added = (
        SCRIPT["read_results"],
        Mutant("planner.assignments.f", ("a + 1",), ("a - 1",)),
    )
    untested = (
        ("async def xǁCǁg__mutmut_2(self, n=1):",),
        ("async def xǁCǁg__mutmut_2(self, n=2):",),
    )
    assert read_results(tmp_path) == {
        added: "survived",
        Mutant("planner.assignments.f", ("b = (", "a + 1", ")"), ("b = None",)): "killed",
        Mutant("planner.assignments.C.g", ("return 1",), ("return 2",)): "timeout",
        Mutant("planner.assignments.C.g", *untested): "survived",
    }
    asked = [
        "autoscaler.planner.assignments.x_f__mutmut_1",
        "autoscaler.planner.other.x_f__mutmut_1",
    ]
    assert read_results(tmp_path, asked) == {added: "survived"}


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


def changes_of(function: Iterable[str], survivor: Any) -> bool:
    """Return True if a function with these lines has what the survivor changes."""
    tokens = SCRIPT["tokens"]
    words = " ".join(tokens(function))
    before, arrow, _ = survivor.change.rpartition(" -> ")
    parts = [" ".join(tokens([part])) for part in before.split("…")]
    return bool(arrow and any(parts)) and all(f" {part} " in f" {words} " for part in parts if part)


def test_every_survivor_that_is_listed_is_a_change_of_today_s_code() -> None:
    survivors = SCRIPT["accepted"](LISTED)
    assert len(survivors) > 50
    for survivor in survivors:
        assert changes_of(lines_of(survivor.function), survivor), str(survivor)


def test_every_listed_survivor_has_a_reason() -> None:
    assert [entry for entry in LISTED if not entry["reason"].strip()] == []


def test_a_function_that_does_not_exist_is_reported() -> None:
    assert lines_of("planner.matching.shares.Shares.take")
    for function in (
        "planner.matching.shares.Shares.gone",
        "planner.gone.take",
        "gone.shares.take",
    ):
        with pytest.raises(LookupError):
            lines_of(function)


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
    assert changes_of(lines, Survivor("planner.a.of", text)) is possible


CODE = """
def double(a):
    return a + a


def unused(a):
    return a * 3


class Counter:
    async def more(self, step=1):
        return len(range(1)) + step
"""


def project(folder: Path, code: str = CODE) -> Path:
    (folder / "autoscaler/room/inner").mkdir(parents=True)
    (folder / "autoscaler/room/code.py").write_text(code)
    (folder / "autoscaler/room/inner/deep.py").write_text(code)
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return folder


def test_a_sample_depends_on_the_seed_and_the_functions_only(tmp_path: Path) -> None:
    draw = SCRIPT["draw"]
    folder = project(tmp_path / "one")
    before = draw("room", 1000, 1, folder)
    assert "autoscaler.room.inner.deep.xǁCounterǁmore__mutmut_1" in before
    assert draw("room", 3, 1, folder) == before[:3]
    other = draw("room", 1000, 2, folder)
    assert (other != before, sorted(other)) == (True, sorted(before))

    edited = CODE.replace("a * 3", "a * 3 + 1").replace("def double", "LINE = 1\n\n\ndef double")
    after = draw("room", 1000, 1, project(tmp_path / "two", edited))
    assert len(after) > len(before)
    assert [name for name in after if "unused" not in name] == [
        name for name in before if "unused" not in name
    ]


def test_a_room_is_sampled_with_a_configuration_of_its_own(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "pages").mkdir()
    (folder / "pages" / "page.md").touch()
    (folder / "autoscaler" / "room" / "pages").symlink_to("../../pages")
    SCRIPT["prepare"]("room", folder)
    work = SCRIPT["prepare"]("room", folder)
    assert (work / "autoscaler/room/code.py").read_text() == CODE
    # mutmut itself does not follow the link.
    assert (work / "mutants/autoscaler/room/pages/page.md").exists()
    before, after = (tomllib.loads((x / "pyproject.toml").read_text()) for x in (folder, work))
    own = after["tool"].pop("mutmut")
    assert own["only_mutate"] == ["autoscaler/room/*"]
    assert own["pytest_add_cli_args_test_selection"] == ["tests/room"]
    assert own["source_paths"] == before["tool"].pop("mutmut")["source_paths"]
    assert after == before


def test_the_files_that_the_configuration_names_exist() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    samples = tool["mutmut_samples"]
    named = [
        *tool["mutmut"]["also_copy"],
        *(test for own in samples["tests"].values() for test in own),
    ]
    assert [name for name in named if not (ROOT / name).exists()] == []
    ignored = [one.removeprefix("--ignore-glob=") for one in samples["pytest_add_cli_args"]]
    assert [pattern for pattern in ignored if not list(ROOT.glob(pattern))] == []
