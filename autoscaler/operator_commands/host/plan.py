"""What `autoscaler install` makes on a host, as values: folders, files and the user. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autoscaler.model.identifiers import Address

USER = "autoscaler"
UNIT = "autoscaler.service"
CONFIGURATION = Path("/etc/autoscaler")
DATA = Path("/var/lib/autoscaler")
UNIT_FILE = Path("/etc/systemd/system") / UNIT
STORE = f"sqlite:///{DATA}/state.db"

_PRIVILEGED_PORTS = 1024
"""Ports below need CAP_NET_BIND_SERVICE (capabilities(7))."""

_HIDDEN = ("/home", "/root", "/run/user")
"""The folders that `ProtectHome=yes` hides from the unit (systemd.exec(5))."""

_RELATIVE_STORE = re.compile(rb"^store:[ \t]*sqlite:///([^/\s]+)[ \t]*$", re.MULTILINE)

_OTHERS_EXECUTE = 0o001
_OTHERS_READ = 0o004


class RefusedError(Exception):
    """This host, program or fleet.yaml cannot be installed. The text says what to do."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to write, which `owner` owns."""

    path: Path
    content: bytes
    mode: int
    owner: str = "root"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder to make, which `owner` owns."""

    path: Path
    mode: int
    owner: str = "root"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What fleet.yaml says of the host. `named` are the contents of the files that it names, by their names."""

    name: str
    store: str
    listens: tuple[Address, ...]
    store_exists: bool
    text: bytes
    named: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to make. A file that is as planned stays untouched."""

    folders: tuple[Folder, ...]
    files: tuple[PlannedFile, ...]


def plan(fleet: Fleet, program: Path, version: str, template: str) -> Plan:
    """Return what an installation makes. `template` is the text of autoscaler.service.

    Raises RefusedError if the unit could not run with this fleet.yaml.
    """
    text = _with_store_in_data(fleet)
    for name in fleet.named:
        _refuse_outside(name)
    if any(address.port == 0 for address in fleet.listens):
        raise RefusedError("server: port 0 is another port after each start: write a port")
    low = any(address.port < _PRIVILEGED_PORTS for address in fleet.listens)
    unit = template.format(
        version=version,
        fleet=fleet.name,
        user=USER,
        configuration=CONFIGURATION,
        data=DATA,
        program=program,
        capabilities="CAP_NET_BIND_SERVICE" if low else "",
    )
    parents = {parent for name in fleet.named for parent in PurePosixPath(name).parents}
    folders = [CONFIGURATION / parent for parent in sorted(parents | {PurePosixPath(".")})]
    named = [
        PlannedFile(CONFIGURATION / name, content, 0o400, USER)
        for name, content in sorted(fleet.named.items())
    ]
    return Plan(
        # systemd makes the folder of the store, and gives all in it to the user (StateDirectory=).
        tuple(Folder(path, 0o755) for path in folders),
        (
            *named,
            PlannedFile(CONFIGURATION / "fleet.yaml", text, 0o644),
            PlannedFile(UNIT_FILE, unit.encode(), 0o644),
        ),
    )


def _with_store_in_data(fleet: Fleet) -> bytes:
    """Return the text of fleet.yaml with a relative store moved to DATA: the unit may write nowhere else.

    Raises RefusedError for a store elsewhere, and for one that exists beside fleet.yaml.
    """
    path = fleet.store.removeprefix("sqlite:///")
    if PurePosixPath(path).is_relative_to(DATA):
        return fleet.text
    text, moved = _RELATIVE_STORE.subn(f"store: sqlite:///{DATA}/".encode() + rb"\1", fleet.text)
    if moved != 1 or "/" in path:
        raise RefusedError(f"store: the controller may write to {DATA} alone: write store: {STORE}")
    if fleet.store_exists:
        raise RefusedError(
            f"{path}: exists beside fleet.yaml, and the controller will use {DATA}/{path}. Stop the controller "
            f"that uses it, and move it: mkdir -m 700 {DATA}; mv {path}* {DATA}/; then run this again"
        )
    return text


def _refuse_outside(name: str) -> None:
    path = PurePosixPath(name)
    if ".." in path.parts:
        raise RefusedError(
            f"{name}: is outside the folder of fleet.yaml: move the file into that folder, or write its "
            "absolute path"
        )
    if str(path) in ("fleet.yaml", "environment"):
        raise RefusedError(f"{name}: this name is taken in {CONFIGURATION}: rename the file")


def unreachable(paths: Iterable[Path], mode_of: Callable[[Path], int]) -> Path | None:
    """Return the first of these paths that the unit's user cannot read, or None.

    `mode_of` returns the mode of a file or folder.
    """
    for path in paths:
        hidden = any(path.is_relative_to(folder) for folder in _HIDDEN)
        closed = any(not mode_of(parent) & _OTHERS_EXECUTE for parent in path.parents)
        if hidden or closed or not mode_of(path) & _OTHERS_READ:
            return path
    return None


def refuse_unreachable(path: Path) -> RefusedError:
    """Return the error for a program that the unit's user cannot read."""
    return RefusedError(
        f"{path}: the unit's user {USER} cannot read this part of the program. Install the program for all "
        "users, such as with `pipx install --global gpu-runner-autoscaler` as root, and run its "
        "`autoscaler install`. With uv, set UV_TOOL_DIR=/opt/uv/tools, UV_TOOL_BIN_DIR=/usr/local/bin and "
        "UV_PYTHON_INSTALL_DIR=/opt/uv/python before `uv tool install`"
    )
