"""Reads the script that the agent writes for the scheduled task of the runner, as PowerShell would run it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.windows.disk import WindowsDisk

_QUOTED = r"'((?:[^']|'')*)'"
_ASSIGN = re.compile(rf"\$(\w+) = {_QUOTED}")
_SET_FROM_FILE = re.compile(r"\$env:(\w+) = \(Get-Content -Raw \$(\w+)\)\.Trim\(\)")
_SET = re.compile(rf"\$env:(\w+) = {_QUOTED}")
_REMOVE = re.compile(r"Remove-Item -Force \$(\w+)")
_ENTER = re.compile(rf"Set-Location {_QUOTED}")
_CALL = re.compile(r"& \.\\([\w.-]+)")


@dataclass(slots=True)
class Launch:
    """What the script starts: a command in a folder, with these variables."""

    variables: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    command: str = ""


def run_launch_script(disk: WindowsDisk, path: str) -> Launch:
    """Run the script up to the command that it starts, and return this command.

    Raises ValueError for a statement that the lab does not know, and OSError, as with a file that is not there.
    """
    launch = Launch()
    names: dict[str, str] = {}
    for line in disk.path(path).read_text("ascii").splitlines():
        if launch.command:
            raise ValueError(f"the script goes on after {launch.command}: {line}")
        if found := _ASSIGN.fullmatch(line):
            names[found[1]] = found[2]
        elif found := _REMOVE.fullmatch(line):
            disk.path(names[found[1]]).unlink()
        elif found := _ENTER.fullmatch(line):
            launch.folder = found[1]
        elif found := _CALL.fullmatch(line):
            launch.command = found[1]
        else:
            launch.variables.update(_variable(disk, names, line))
    return launch


def _variable(disk: WindowsDisk, names: Mapping[str, str], line: str) -> dict[str, str]:
    """Return the variable of the environment that a line sets. Raises ValueError if it is no such line."""
    if found := _SET_FROM_FILE.fullmatch(line):
        return {found[1]: disk.path(names[found[2]]).read_text("ascii").strip()}
    if found := _SET.fullmatch(line):
        return {found[1]: found[2].replace("''", "'")}
    raise ValueError(f"the lab cannot run this PowerShell: {line}")
