"""The file that machines run contains exactly the agent's modules, always with the same bytes."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.app.agent_file import build_agent

MODULES = sorted(Path("autoscaler/agent").rglob("[a-z]*.py"))
SHARED = Path("autoscaler/model/jobs/access_rules.py")
AGENT = build_agent()


def module_level(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a module, with those inside its `if` statements, but for `if TYPE_CHECKING`."""
    found: list[ast.stmt] = []
    left = list(tree.body)
    while left:
        node = left.pop(0)
        found.append(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            left[:0] = [*node.body, *node.orelse]
    return found


def definitions(tree: ast.Module) -> list[str]:
    """Each function, class and constant, as code without positions."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Assign)
    found = [ast.unparse(node) for node in module_level(tree) if isinstance(node, kinds)]
    return [code for code in found if not code.startswith(("TYPE_CHECKING", "Found ="))]


def package(folder: Path, **sources: str) -> Path:
    """A folder with these modules. `room__name` is a module in a room."""
    for name, source in sources.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
    return folder


def test_the_bytes_are_the_same_in_every_process() -> None:
    code = (
        "import sys; from autoscaler.app.agent_file import build_agent;"
        "sys.stdout.buffer.write(build_agent())"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"},
        )
        assert done.stdout == AGENT


def test_the_bytes_do_not_depend_on_the_times_of_the_files(tmp_path: Path) -> None:
    for file in reversed(MODULES):
        copy = tmp_path / file.relative_to("autoscaler/agent")
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text())
        os.utime(copy, (0, 0))
    assert build_agent(tmp_path) == AGENT


def test_the_file_contains_every_definition_of_every_module_once() -> None:
    built = definitions(ast.parse(AGENT))
    of_modules = [
        code for file in (*MODULES, SHARED) for code in definitions(ast.parse(file.read_text()))
    ]
    assert len(built) > 90
    assert sorted(built) == sorted(of_modules)


def test_modules_that_only_type_checkers_need_are_not_in_the_file(tmp_path: Path) -> None:
    main = (
        "from __future__ import annotations\n\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n"
        "    from autoscaler.agent.ports import Port\n\n\ndef use(port: Port) -> None: ...\n"
    )
    built = build_agent(package(tmp_path, main=main, ports="class Port: ...\n"))
    assert b"def use(port: Port)" in built
    assert b"ports" not in built
    for refused in ("from .ports import Port", "from autoscaler.agent.ports import Port as P"):
        source = main.replace("from autoscaler.agent.ports import Port", refused)
        with pytest.raises(ValueError, match=r"main\.py:5: write `from autoscaler\.agent"):
            build_agent(package(tmp_path, main=source))


def test_a_module_comes_after_those_that_it_needs() -> None:
    text = AGENT.decode()
    for file in (*MODULES, SHARED):
        own = text.index(f"# --- {'.'.join(file.with_suffix('').parts)} ---")
        for node in module_level(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and "autoscaler" in str(node.module):
                assert text.index(f"# --- {node.module} ---") < own


def test_the_file_imports_only_the_standard_library() -> None:
    tree = ast.parse(AGENT, feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    assert not [node for node in imports if "autoscaler" in ast.unparse(node)]


def test_the_file_behaves_like_its_modules(tmp_path: Path) -> None:
    folder = package(
        tmp_path,
        room__words="import os\n\nWORD = os.sep\n",
        unused="WORD = 1\n",
        main=(
            '"""Prints a word."""\nimport sys\n\n'
            "from autoscaler.agent.room.words import (\n    WORD,\n)\n\n"
            "if sys.platform == 'win32':\n    import ctypes\n\n    LAST = ctypes\n"
            "else:\n    LAST = WORD\n\n"
            "if __name__ == '__main__':\n    print(WORD + LAST)\n"
        ),
    )
    built = build_agent(folder)
    assert b"unused" not in built
    (tmp_path / "built.py").write_bytes(built)
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "built.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{os.sep}{os.sep}\n"


@pytest.mark.parametrize(
    ("main", "wrong"),
    [
        ("from autoscaler.agent.other import x as y", "main.py:1: write `from autoscaler.agent."),
        ("import autoscaler.agent.other", "main.py:1: write `from autoscaler.agent."),
        ("from autoscaler.model.plan import Plan", "main.py:1: write `from autoscaler.agent."),
        ("from .other import x", "main.py:1: write `from autoscaler.agent."),
        (
            "def f():\n    from autoscaler.agent.other import x",
            "main.py:2: write `from autoscaler.",
        ),
        ("from autoscaler.agent.room import one", "there is no room.py: write `from autoscaler."),
        ("from time import sleep", "main.py:1: write `import MODULE`"),
        ("import time as t", "main.py:1: write `import MODULE`"),
        ("from autoscaler.agent.other import x\nx = 1", "main.py: x is also defined in other.py"),
        (
            "from autoscaler.agent.room.one import y\ny = 1",
            "main.py: y is also defined in room/one.py",
        ),
        ("import time\n\ntime = 1", "main.py: time is also defined in the standard library"),
        ("def open(): ...", "main.py: open is also defined in builtins"),
        ("if 1:\n    a, (open, c) = 1, (2, 3)", "main.py: open is also defined in builtins"),
        ("for x in (1, 2): ...", "line 1: only definitions"),
    ],
)
def test_modules_whose_names_conflict_in_one_file_are_refused(
    tmp_path: Path, main: str, wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong.replace("(", r"\(")):
        build_agent(package(tmp_path, main=main, other="x = 1", room__one="y = 1"))
