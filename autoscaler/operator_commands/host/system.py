"""The edge of `autoscaler install`: users, files and systemd of this host."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

import autoscaler
from autoscaler.model.identifiers import Seconds
from autoscaler.operator_commands.host.plan import (
    UNIT,
    UNIT_FILE,
    USER,
    Folder,
    PlannedFile,
    RefusedError,
    refuse_unreachable,
    unreachable,
)


class Host(Protocol):
    """A host with systemd. Each change returns whether it was needed."""

    def refuse_unusable(self) -> None:
        """Raise RefusedError unless this user may install a unit here."""

    def program(self) -> Path:
        """Return the program that the unit runs. Raises RefusedError if its user could not read it."""

    def make_user(self) -> bool:
        """Make the user of the unit."""

    def make_folder(self, folder: Folder) -> bool:
        """Make a folder with its owner and mode."""

    def write(self, file: PlannedFile) -> bool:
        """Write a file with its owner and mode, at once."""

    def systemctl(self, *words: str) -> bool:
        """Run systemctl. Return whether it succeeded."""

    def remove_unit(self) -> bool:
        """Stop the unit, and remove its file. Raises RefusedError if systemd does not stop it."""

    def purge(self, *folders: Path) -> None:
        """Remove these folders and the unit's user."""


PROGRAM_WITHIN: Seconds = 180.0
"""How long one program may take. A restart takes 150 s at most: 60 to stop, and systemd's 90 to start."""


class ThisHost:
    """This host. `root` is the folder that holds its files: `/`, but for tests.

    A program that takes longer than `within` is ended, and its method raises RefusedError.
    """

    def __init__(self, root: Path = Path("/"), within: Seconds = PROGRAM_WITHIN) -> None:
        self._root = root
        self._within = within

    def refuse_unusable(self) -> None:
        """See `Host.refuse_unusable`."""
        if os.geteuid() != 0:
            raise RefusedError(
                "this needs root: run it with sudo. Without root, run `autoscaler serve`"
            )
        missing = [name for name in ("systemctl", "useradd") if shutil.which(name) is None]
        # The folder that sd_booted(3) looks for.
        if missing or not self._there(Path("/run/systemd/system")).is_dir():
            raise RefusedError(
                f"this host does not run systemd{' and useradd' if missing else ''}: use a host with "
                "Debian, Ubuntu or Amazon Linux 2023, or a container (docs/deploy.md)"
            )

    def program(self) -> Path:
        """See `Host.program`."""
        program = Path(sys.executable).with_name("autoscaler")
        if not program.exists():
            raise RefusedError(
                f"{program}: does not exist: install the program with pipx, uv or pip"
            )
        needed = (program, Path(sys.executable).resolve(), Path(autoscaler.__file__))
        hidden = unreachable(needed, lambda path: path.stat().st_mode)
        if hidden is not None:
            raise refuse_unreachable(hidden)
        return program

    def make_user(self) -> bool:
        """See `Host.make_user`."""
        try:
            pwd.getpwnam(USER)
        except KeyError:
            shell = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
            self._run("useradd", *shell, "--home-dir", "/var/lib/autoscaler", USER)
            return True
        return False

    def make_folder(self, folder: Folder) -> bool:
        """See `Host.make_folder`."""
        there, owner = self._there(folder.path), self._ids(folder.owner)
        made = not there.is_dir()
        there.mkdir(parents=True, exist_ok=True)
        if _is(there, folder.mode, owner):
            return made
        os.chown(there, *owner)
        there.chmod(folder.mode)
        return True

    def write(self, file: PlannedFile) -> bool:
        """See `Host.write`."""
        there, owner = self._there(file.path), self._ids(file.owner)
        if there.is_file() and _is(there, file.mode, owner) and there.read_bytes() == file.content:
            return False
        descriptor, name = tempfile.mkstemp(dir=there.parent, prefix=f".{there.name}.")
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(file.content)
                os.fchown(descriptor, *owner)
                os.fchmod(descriptor, file.mode)
                opened.flush()
                os.fsync(descriptor)
            part.replace(there)
        finally:
            part.unlink(missing_ok=True)
        return True

    def systemctl(self, *words: str) -> bool:
        """See `Host.systemctl`."""
        return self._ended("systemctl", *words).returncode == 0

    def remove_unit(self) -> bool:
        """See `Host.remove_unit`."""
        there = self._there(UNIT_FILE)
        if not there.exists():
            return False
        self._run("systemctl", "disable", "--now", UNIT)
        there.unlink()
        self.systemctl("daemon-reload")
        return True

    def purge(self, *folders: Path) -> None:
        """See `Host.purge`."""
        for folder in folders:
            if self._there(folder).exists():
                shutil.rmtree(self._there(folder))
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return
        self._run("userdel", USER)

    def _there(self, path: Path) -> Path:
        return self._root / path.relative_to("/")

    def _ids(self, owner: str) -> tuple[int, int]:
        found = pwd.getpwnam(owner)
        return found.pw_uid, found.pw_gid

    def _run(self, *words: str) -> None:
        done = self._ended(*words, capture_output=True)
        if done.returncode != 0:
            raise RefusedError(f"{' '.join(words)} failed: {done.stderr.strip()}")

    def _ended(
        self, *words: str, capture_output: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(  # noqa: S603 - a command of ours
                words, check=False, capture_output=capture_output, text=True, timeout=self._within
            )
        except subprocess.TimeoutExpired:
            raise RefusedError(
                f"{' '.join(words)} did not end in {self._within:g} s: see `journalctl -n 50` and "
                "`systemctl list-jobs`, then run this command again"
            ) from None


def _is(path: Path, mode: int, owner: tuple[int, int]) -> bool:
    found = path.stat()
    return (stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)) == (mode, owner)
