"""A program that Wine did not start is started again."""

import subprocess
from pathlib import Path

import pytest

from lab.windows.disk import make_prefix
from lab.windows.parts import Parts, wine, wine_environment
from lab.windows.processes import shut_down
from lab.windows.programs import retried_starts
from lab.windows.programs.retried_starts import INTERNAL_ERROR, TRIES, retried


class WindowsError(OSError):
    def __init__(self, winerror: int) -> None:
        super().__init__(winerror)
        self.winerror = winerror


class Starts:
    """Raises these errors of Windows one after the other, and then starts."""

    def __init__(self, *errors: int) -> None:
        self._errors = list(errors)
        self.calls = 0

    def create(self, *arguments: str) -> str:
        self.calls += 1
        if self._errors:
            raise WindowsError(self._errors.pop(0))
        return " ".join(arguments)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retried_starts, "PAUSE", 0.0)


def test_a_start_that_wine_refused_is_tried_again() -> None:
    starts = Starts(INTERNAL_ERROR, INTERNAL_ERROR)
    assert retried(starts.create)("cmd", "/c") == "cmd /c"
    assert starts.calls == 3


def test_the_last_try_and_another_error_are_raised() -> None:
    never, absent = Starts(*[INTERNAL_ERROR] * TRIES), Starts(2)
    for starts, calls in ((never, TRIES), (absent, 1)):
        with pytest.raises(WindowsError):
            retried(starts.create)()
        assert starts.calls == calls


def test_the_python_of_the_machines_uses_it(open_folder: Path, parts: Parts) -> None:
    prefix = open_folder / "prefix"
    disk = make_prefix(prefix, parts)
    (prefix / "drive_c" / "windows").symlink_to(parts.prefix / "drive_c" / "windows")
    program = (
        "import subprocess; print(subprocess._winapi.CreateProcess.__name__); "
        "print(subprocess.run(['cmd.exe', '/c', 'exit 7']).returncode)"
    )
    try:
        done = subprocess.run(
            [str(wine()), "C:\\runner-agent\\python\\python.exe", "-I", "-S", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
            text=True,
            env=wine_environment(disk.prefix),
            cwd=disk.path("C:\\runner-agent"),
        )
    finally:
        shut_down(disk.prefix)
    assert done.stdout.split() == ["create_again", "7"]
