"""A real PostgreSQL server for the tests. A crash of the server loses nothing that was committed."""

import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from lab.replicas import postgresql
from tests.patience import PATIENCE


class PostgresqlServer(postgresql.PostgresqlServer):
    """A server that runs from the first moment, and that tests can suspend. `folder` is where its folder is."""

    def __init__(self, *, durable: bool = False, folder: Path | None = None) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="pg-", dir=folder)), durable=durable)
        self.start()

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL, such as pg_dump."""
        done = subprocess.run(
            [str(self.programs() / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """End the server and its sessions with SIGKILL, as a crash of the host does."""
        sessions = psutil.Process(self.pid).children()
        super().kill()
        for session in sessions:
            with suppress(psutil.NoSuchProcess):
                session.kill()
        psutil.wait_procs(sessions, timeout=PATIENCE)

    def suspend(self) -> None:
        """Stop the server and its sessions with SIGSTOP, as a suspended host does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on after `suspend`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        server = psutil.Process(self.pid)
        for process in (server, *server.children()):
            process.send_signal(number)


END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


def change(url: str, statement: str) -> None:
    """Run one statement in another session."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
