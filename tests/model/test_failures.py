"""The list of health checks has every check of the agent that can fail, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import autoscaler.agent
from autoscaler.model.machines.failures import HARDWARE_CHECKS, HEALTH_CHECKS

AGENT = Path(autoscaler.agent.__file__).parent
REPORTERS = {"Check", "InstallFailure", "nvidia_log", "run", "verdict"}
"""The calls of the agent whose first argument is the name of a check that can fail."""


def _texts(node: ast.expr) -> Iterator[str]:
    for one in node.elts if isinstance(node, ast.Tuple) else (node,):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _always_passes(node: ast.Call) -> bool:
    ok = node.args[1] if len(node.args) > 1 else None
    return isinstance(ok, ast.Constant) and ok.value is True


def _names(node: ast.AST, file: str) -> Iterator[str]:
    """Return the names of checks in a call or its keyword `name`, and those that a variable `name` gets."""
    if isinstance(node, ast.Call) and _called(node) in REPORTERS and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and not _always_passes(node):
            yield from _texts(first)
    elif (
        isinstance(node, ast.For)
        and file == "checks/machine.py"
        and getattr(node.target, "id", "") == "name"
    ):
        yield from _texts(node.iter)
    elif isinstance(node, ast.keyword) and node.arg == "name":
        yield from _texts(node.value)
    elif isinstance(node, ast.Assign) and file.startswith(("driver/", "installing/")):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for variable, value in pairs:
                if getattr(variable, "id", "") == "name":
                    yield from _texts(value)


def test_the_list_of_health_checks_is_that_of_the_agent() -> None:
    found = {
        name
        for file in sorted(AGENT.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in _names(node, str(file.relative_to(AGENT)))
    }
    assert found | {"other"} == set(HEALTH_CHECKS)
    assert set(HEALTH_CHECKS) >= HARDWARE_CHECKS
