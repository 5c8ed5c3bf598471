"""Builds the one file that machines fetch and run, from the modules of `autoscaler/agent`.

The file contains the modules one after another, each after the modules that it imports, in one
namespace. It also contains the module that the agent shares with the controller.
docs/adr/0011-the-agent-is-built-into-one-file.md gives the reasons.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

PACKAGE = "autoscaler.agent"
SHARED = "autoscaler.model.jobs.access_rules"
"""The one module of ours outside the package that the agent may import: both decide with it about `access`."""

MAIN = "main"
"""The module that runs the agent. The file contains it and the modules that it needs."""

_HEAD = """\
# The agent of a machine, built from the modules of autoscaler/agent: change those, not this file.
from __future__ import annotations
"""


@dataclass(frozen=True, slots=True)
class _Module:
    """A module of the agent, prepared for the file.

    `name` is dotted, such as autoscaler.agent.driver.plan. `libraries` are the modules of the standard library
    that it imports, `needs` those of the agent, `names` the names that it defines, `text` its source without
    these imports.
    """

    name: str
    libraries: frozenset[str]
    needs: tuple[str, ...]
    names: frozenset[str]
    text: str


@cache
def own_agent() -> bytes:
    """Return the file of this version's agent. The first call takes 0.1 s of CPU time."""
    return build_agent()


def build_agent(folder: Traversable | None = None) -> bytes:
    """Return the agent's file. The same modules give the same bytes, with every version of Python.

    `folder` contains the modules (by default, those of the package). Raises ValueError if a name
    would have another meaning in the file than in its module.
    """
    modules = _in_order(folder or files(PACKAGE))
    libraries = sorted(set().union(*(module.libraries for module in modules)))
    _check_names(modules, libraries)
    head = _HEAD + "\n" + "".join(f"import {name}\n" for name in libraries)
    parts = (f"# --- {module.name} ---\n\n{module.text}\n" for module in modules)
    return "\n\n".join((head, *parts)).encode()


def _in_order(folder: Traversable) -> list[_Module]:
    """Return the modules, each after those that it needs. Circular imports break an import contract."""
    found: dict[str, _Module] = {}

    def add(name: str) -> None:
        module = _read(name, _source(folder, name))
        for needed in module.needs:
            if needed not in found:
                add(needed)
        found[name] = module

    add(f"{PACKAGE}.{MAIN}")
    return list(found.values())


def _source(folder: Traversable, name: str) -> str:
    package, _, module = name.rpartition(".")
    if name == SHARED:
        return files(package).joinpath(f"{module}.py").read_text(encoding="utf-8")
    file = folder.joinpath(_path(name))
    if not file.is_file():
        raise ValueError(
            f"there is no {_path(name)}: write `from {PACKAGE}.ROOM.MODULE import NAME`"
        )
    return file.read_text(encoding="utf-8")


def _path(name: str) -> str:
    """Return the file of a module, relative to the package of the agent."""
    return f"{name.removeprefix(f'{PACKAGE}.').replace('.', '/')}.py"


def _check_names(modules: Iterable[_Module], libraries: Iterable[str]) -> None:
    """Raise ValueError for a name that is defined twice, or hides a library or a builtin."""
    owners = dict.fromkeys(dir(builtins), "builtins")
    owners |= {name.partition(".")[0]: "the standard library" for name in libraries}
    for module in modules:
        for name in sorted(module.names):
            if name in owners:
                raise ValueError(f"{_path(module.name)}: {name} is also defined in {owners[name]}")
            owners[name] = _path(module.name)


def _read(name: str, source: str) -> _Module:
    """Prepare a module. Raises ValueError for an import that the file cannot express."""
    tree = ast.parse(source)
    own = [*_statements(tree.body)]
    typing = [node for node in own if _is_for_type_checkers(node)]
    # The file contains neither what is inside `if TYPE_CHECKING:` nor what that imports.
    expressible = [*own, *(one for node in typing for one in getattr(node, "body", ()))]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom) or not _is_ours(node):
            continue
        if node not in expressible or not _is_plain(node):
            raise ValueError(
                f"{_path(name)}:{node.lineno}: write `from {PACKAGE}.MODULE import NAME`"
            )
    ours = [node for node in own if isinstance(node, ast.ImportFrom) and _is_ours(node)]
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    libraries = (_libraries(name, node) for node in imports if node not in ours)
    dropped = [*typing, *ours, *imports]
    kept = (node for node in own if node not in dropped)
    hidden = {line for node in dropped for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = (line for number, line in enumerate(source.split("\n"), 1) if number not in hidden)
    return _Module(
        name,
        frozenset().union(*libraries),
        tuple(str(node.module) for node in ours),
        frozenset().union(*map(_defined, kept)),
        "\n".join(lines).strip(),
    )


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Return the statements of a module's own level, with those inside its `if` statements."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and not _is_for_type_checkers(node):
            yield from _statements((*node.body, *node.orelse))


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether this imports anything of the product, in whichever form."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").partition(".")[0] == "autoscaler"
    return any(alias.name.partition(".")[0] == "autoscaler" for alias in node.names)


def _is_plain(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether this imports names from a module of the agent, or the shared one, as they are there."""
    if not isinstance(node, ast.ImportFrom) or any(alias.asname for alias in node.names):
        return False
    return (node.module or "").startswith(f"{PACKAGE}.") or node.module == SHARED


def _is_for_type_checkers(node: ast.stmt) -> bool:
    """Return whether this is `TYPE_CHECKING = False` or `if TYPE_CHECKING:`."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Assign) and _defined(node) == {"TYPE_CHECKING"}


def _libraries(name: str, node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the modules that an import names. Raises ValueError unless it is a plain `import`."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return set()
    if isinstance(node, ast.ImportFrom) or any(alias.asname for alias in node.names):
        raise ValueError(f"{_path(name)}:{node.lineno}: write `import MODULE`, so that names agree")
    return {alias.name for alias in node.names}


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        case ast.Assign():
            targets = node.targets
        case ast.AnnAssign():
            targets = [node.target]
        case ast.Expr() | ast.If():
            return set()
        case _:
            raise ValueError(f"line {node.lineno}: only definitions may be at a module's own level")
    return {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}
