"""Writes the tables of inputs and outputs in the README of each Terraform module.

    python scripts/module_docs.py

A README has its own text first; the tables follow the line `## Inputs`. Reads `variables.tf` and `outputs.tf`
as `terraform fmt` writes them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

MODULES = Path(__file__).parents[1] / "terraform" / "modules"
COMMAND = "python scripts/module_docs.py"
MARK = "## Inputs\n"

_BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_ARGUMENT = re.compile(r"^  (\w+) += (.*?)(?=^  \w|^\Z|^$)", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the arguments of each block, with the text of each value."""
    for found in _BLOCK.finditer(text):
        # Nested blocks, such as `validation`, are after an empty line.
        arguments = _ARGUMENT.findall(found[3])
        yield found[2], {key: value.strip() for key, value in reversed(arguments)}


def tables(module: Path) -> str:
    """Return the two tables of a module."""
    lines = [MARK, "| name | type | default | meaning |", "|---|---|---|---|"]
    for name, has in blocks((module / "variables.tf").read_text()):
        kind = re.sub(r"\s*\n\s*", " ", has["type"])
        default = f"`{_short(has['default'])}`" if "default" in has else "required"
        lines.append(f"| `{name}` | `{_short(kind)}` | {default} | {_text(has['description'])} |")
    lines += ["", "## Outputs\n", "| name | meaning |", "|---|---|"]
    for name, has in blocks((module / "outputs.tf").read_text()):
        lines.append(f"| `{name}` | {_text(has['description'])} |")
    return "\n".join(lines) + "\n"


def written(module: Path) -> str:
    """Return the text that the README of a module should have."""
    own, _, _ = (module / "README.md").read_text().partition(MARK)
    return own + tables(module)


def _short(value: str) -> str:
    """Return a value in one line, with `...` in place of a long object."""
    line = re.sub(r"\s*\n\s*", " ", value).replace("|", "\\|")
    return line if len(line) <= 60 else f"{line.partition('(')[0]}(...)"


def _text(value: str) -> str:
    return value.strip('"').replace('\\"', '"').replace("|", "\\|")


def main() -> None:
    """Write all tables."""
    for module in sorted(MODULES.iterdir()):
        (module / "README.md").write_text(written(module))


if __name__ == "__main__":
    main()
