"""Draws changes of a room's functions, with mutmut's own rules of what to change.

The order of the draw depends only on the seed and on each function's text. A function that was not
edited keeps its place in the draw and the keys of its changes.
"""

import ast
import difflib
import hashlib
from functools import cached_property
from pathlib import Path

import libcst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutant_survivors import Survivor, change
from mutmut.mutation.file_mutation import Mutation, create_mutations, deep_replace

ROOT = Path(__file__).parents[1]

PARTS: dict[str, tuple[str, ...]] = {
    "server_console": ("autoscaler/server/console*.py",),
    "operators": (
        "autoscaler/app/changes.py",
        "autoscaler/app/planned_file.py",
        "autoscaler/app/reloading.py",
        "autoscaler/config/operator_tokens.py",
        "autoscaler/config/changed_keys.py",
        "autoscaler/controller/hold_reporter.py",
        "autoscaler/controller/operator_*.py",
        "autoscaler/controller/reconfiguration.py",
        "autoscaler/ledger/operator_holds.py",
        "autoscaler/ledger/reclassify.py",
        "autoscaler/planner/out_of_service.py",
        "autoscaler/server/token_file.py",
    ),
    "dashboards": ("dashboards/*.py",),
}
"""Files that are sampled like a room, under a name of their own."""


class Change:
    """One change of one function. `span` is the first and last line of the changed statement."""

    def __init__(
        self, room: str, module: libcst.Module, path: str, mutation: Mutation, key: str, line: int
    ) -> None:
        self.room = room
        self.path = path
        self.key = key
        """Equal for the same change of the same function, wherever the function stands in its file."""
        self._module = module
        self._mutation = mutation
        self._line = line

    @cached_property
    def source(self) -> str:
        """The file before the change."""
        return self._module.code

    @cached_property
    def text(self) -> str:
        """The file after the change."""
        one = self._mutation
        changed = deep_replace(self._module, one.original_node, one.mutated_node)
        assert isinstance(changed, libcst.Module)
        return changed.code

    @cached_property
    def span(self) -> tuple[int, int]:
        """The innermost statement that has the changed line, a compound one without its body.

        Of a function's first lines, which have its defaults, the whole function.
        """
        spans = [
            (node.lineno, _last_line(node))
            for node in ast.walk(ast.parse(self.source))
            if isinstance(node, ast.stmt) and node.lineno <= self._line <= _last_line(node)
        ]
        return min(spans, key=lambda span: span[1] - span[0], default=(self._line, self._line))

    @cached_property
    def survivor(self) -> Survivor:
        """As docs/mutants.yaml lists it."""
        marked = self._marked()
        before = [line[1:] for line in marked if line[0] == "-"]
        after = [line[1:] for line in marked if line[0] == "+"]
        return Survivor(self._function(), change(before, after))

    def __str__(self) -> str:
        """The function, and its lines before and after."""
        return "\n".join([f"@@ {self._function()}", *self._marked()])

    def _marked(self) -> list[str]:
        lines = difflib.unified_diff(self.source.splitlines(), self.text.splitlines(), n=0)
        marked = [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
        return [line[0] + line[1:].strip() for line in marked]

    def _function(self) -> str:
        module = self.path.removesuffix(".py").removeprefix("autoscaler/").replace("/", ".")
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


def _last_line(node: ast.stmt) -> int:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return max(last, node.lineno)


def draw(room: str, count: int, seed: int, root: Path = ROOT) -> tuple[list[Change], int]:
    """Return `count` changes of the room's functions in random order, and how many there are."""
    every: list[tuple[str, Change]] = []
    for file in files(room, root):
        every += _changes(room, file, str(file.relative_to(root)), seed)
    every.sort(key=lambda ranked: ranked[0])
    return [change for _, change in every[:count]], len(every)


def files(room: str, root: Path) -> list[Path]:
    """Return the files of a room, or of a part of PARTS."""
    globs = PARTS.get(room, (f"autoscaler/{room}/**/*.py",))
    return sorted(file for glob in globs for file in root.glob(glob))


def _changes(room: str, file: Path, path: str, seed: int) -> list[tuple[str, Change]]:
    module, mutations, _, _ = create_mutations(str(file), file.read_text())
    places = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    texts: dict[int, str] = {}
    counted: dict[str, int] = {}
    found = []
    for one in mutations:
        function = one.contained_by_top_level_function
        if not isinstance(function, libcst.FunctionDef):
            continue
        if id(function) not in texts:
            texts[id(function)] = module.code_for_node(function).strip()
        named = f"{path}\0{function.name.value}\0{texts[id(function)]}"
        counted[named] = counted.get(named, 0) + 1
        key = _hash(f"{named}\0{counted[named]}")
        line = places[one.original_node].start.line
        found.append((_hash(f"{seed} {key}"), Change(room, module, path, one, key, line)))
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
