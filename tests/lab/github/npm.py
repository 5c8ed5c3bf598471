"""GitHub's own descriptions, which scripts/npm_packages.py brings."""

import runpy
from functools import cache
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[3] / "scripts" / "npm_packages.py"


@cache
def script() -> dict[str, Any]:
    """The names in it."""
    return runpy.run_path(str(SCRIPT))


def package_file(package: str, name: str) -> Path:
    """A file of OPENAPI, EXAMPLES or SCHEMAS. FileNotFoundError says how to bring it."""
    found: Path = script()["find"](script()[package], name)
    return found
