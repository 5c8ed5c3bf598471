"""What the steps share: messages, programs with a time limit, tries, downloads, the registry, access rights."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import winreg
from collections.abc import Callable, Collection
from pathlib import Path

HERE = Path(__file__).parent
BUILD = Path("C:\\image-build")
"""Where Packer puts this folder. `provision.py` removes it."""

AGENT_FOLDER = Path("C:\\runner-agent")
PYTHON = AGENT_FOLDER / "python" / "python.exe"
RUNNER = Path("C:\\actions-runner")
TOOLS = Path("C:\\hostedtoolcache")
STATE = Path("C:\\ProgramData\\runner-agent")
HANDOVER = STATE / "handover"
ACCOUNT = "runner"

SYSTEM, ADMINISTRATORS, USERS = "*S-1-5-18", "*S-1-5-32-544", "*S-1-5-32-545"
"""Accounts as icacls takes them. Their names depend on the language of Windows."""

MACHINE_VARIABLES = "SYSTEM\\CurrentControlSet\\Control\\Session Manager\\Environment"

RETRY_DELAY = float(os.environ.get("RETRY_DELAY", "5"))
"""The first delay between tries in seconds; it doubles each time."""

versions: dict[str, str] = {}
"""The versions in the manifest."""


class StepError(Exception):
    """A step cannot succeed, or did not. The text says why."""


def say(text: str) -> None:
    """Print a line for the log of the build."""
    print(f"image-build: {text}", flush=True)


def windows_version() -> str:
    """Return the version of Windows. The module `platform` would ask WMI, which can take a minute at a boot."""
    found = sys.getwindowsversion()
    return f"{found.major}.{found.minor}.{found.build}"


def note(name: str, value: str) -> None:
    """Add a version to the manifest."""
    versions[name] = value


def value(name: str) -> str:
    """Return a value that Packer passes. Raises StepError if it is missing."""
    found = os.environ.get(name, "")
    if not found:
        raise StepError(f"{name} is not set")
    return found


def run(*words: object, seconds: float = 300.0, accepted: Collection[int] = (0,)) -> str:
    """Run a program; return what it printed. The message of an error has the end of that, and no argument.

    Raises StepError for an exit status that is not accepted, a missing program, and one that does not end.
    """
    argv = [str(word) for word in words]
    name = Path(argv[0]).name
    # A file, because a child that outlives the program would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise StepError(f"{name} does not start: {error}") from error
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise StepError(f"{name} was stopped after {seconds:.0f} s") from None
        output.seek(0)
        text = output.read().decode(errors="replace").replace("\r\n", "\n")
    if status not in accepted:
        raise StepError(f"{name} exited with {status}: {' '.join(text.split())[-500:]}")
    return text


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and its children."""
    subprocess.run(
        ["taskkill", "/f", "/t", "/pid", str(process.pid)],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=30,
    )
    process.kill()
    process.wait()


def retry(tries: int, what: str, act: Callable[[], None]) -> None:
    """Act until it succeeds. Raises the StepError of the last try."""
    delay = RETRY_DELAY
    for number in range(1, tries + 1):
        try:
            return act()
        except StepError as error:
            say(f"{what} failed, try {number} of {tries}: {error}")
            if number == tries:
                raise
        time.sleep(delay)
        delay *= 2
    raise AssertionError("the last try returns or raises")


def fetch(url: str, sha256: str, file: Path, seconds: float = 900.0) -> None:
    """Download a file whose checksum is known. Raises StepError."""
    retry(5, url, lambda: _download(url, file, seconds))
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        file.unlink()
        raise StepError(f"{url} has the SHA-256 {found}, not {sha256}")


def _download(url: str, file: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, file.open("wb") as target:
            while block := answer.read(1 << 20):
                target.write(block)
                if time.monotonic() > end:
                    raise StepError(f"not complete after {seconds:.0f} s")
    except (OSError, ValueError) as error:
        raise StepError(str(error)) from error


def need_free_gb(gb: int) -> None:
    """Raise StepError if drive C has less space left."""
    free = shutil.disk_usage("C:\\").free
    if free < gb << 30:
        raise StepError(f"C: has {free >> 20} MB left; needed: {gb} GB")


def need_programs(*names: str) -> None:
    """Raise StepError with the programs that are not on the PATH."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise StepError(f"missing programs: {' '.join(missing)}")


def set_value(key: str, name: str, content: "int | str") -> None:
    """Set a value of the machine's registry: an int as REG_DWORD, a text as REG_SZ."""
    kind = winreg.REG_DWORD if isinstance(content, int) else winreg.REG_SZ
    with winreg.CreateKeyEx(winreg.HKEY_LOCAL_MACHINE, key, 0, winreg.KEY_WRITE) as opened:
        winreg.SetValueEx(opened, name, 0, kind, content)


def get_value(key: str, name: str) -> "int | str | None":
    """Return a value of the machine's registry, or None."""
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
            found = winreg.QueryValueEx(opened, name)[0]
    except OSError:
        return None
    return found if isinstance(found, int) else str(found)


def prepend_path(*folders: Path) -> None:
    """Put folders before the PATH of the machine, which jobs get."""
    old = str(get_value(MACHINE_VARIABLES, "Path") or "").split(";")
    new = [str(one) for one in folders]
    kept = [one for one in old if one and one not in new]
    with winreg.CreateKeyEx(
        winreg.HKEY_LOCAL_MACHINE, MACHINE_VARIABLES, 0, winreg.KEY_WRITE
    ) as key:
        winreg.SetValueEx(key, "Path", 0, winreg.REG_EXPAND_SZ, ";".join([*new, *kept]))


def restrict(folder: Path, *rights: str) -> None:
    """Give a folder, and everything in it, these rights and no others.

    What is new on drive C would otherwise be open to every user. Raises StepError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run("icacls", folder, "/inheritance:r", "/grant:r", *rights, "/q", seconds=900)


def full(account: str) -> str:
    """Return the right to do everything in a folder and below."""
    return f"{account}:(OI)(CI)F"
