"""A host in a folder, with stand-ins for systemctl, useradd and userdel on the PATH."""

import os
from pathlib import Path

import pytest

PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
case "$*" in
  "${HANGS:-nothing}"*) exec sleep 3600;;
  *is-active*) exit "${INACTIVE:-0}";;
  restart*|disable*) exit "${BROKEN:-0}";;
esac
"""


class Place:
    """The folder of a host, and what was called there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "root"
        self._calls = folder / "calls"
        programs = folder / "bin"
        programs.mkdir()
        (self.root / "run/systemd/system").mkdir(parents=True)
        (self.root / "etc/systemd/system").mkdir(parents=True)
        for name in ("systemctl", "useradd", "userdel"):
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CALLS", str(self._calls))
        self._calls.write_text("")

    def calls(self) -> list[str]:
        """Return what was called since the last question."""
        found = self._calls.read_text().splitlines()
        self._calls.write_text("")
        return found

    def there(self, path: str) -> Path:
        """Return where a path of the host is."""
        return self.root / path.lstrip("/")
