"""The words for PostgreSQL's errors, and which of them a new attempt may mend.

Codes: postgresql.org/docs/current/errcodes-appendix.html. Messages never have an error's detail, which may
contain the data to be written.
"""

import psycopg

from autoscaler.controller.ports.replicas import StoreUnavailableError
from autoscaler.controller.ports.store import StoreError

_MAX_WORDS = 200

_WORDS = {
    "08": "the connection was lost: check the server and the network",
    "25006": "the server takes no writes: name the primary, or add target_session_attrs=read-write",
    "28": "the server refuses this user: check the user, the password and pg_hba.conf",
    "3D000": "there is no such database: create it",
    "42501": "this user has too few rights: make it the owner of the database or the schema",
    "53100": "the server's disk is full: make room on it, then start again",
    "53": "the server has no free connections or memory: raise its limits, or stop other programs",
    "55P03": "another program has locked the tables for too long: stop that program",
    "57014": "a statement took too long: check the server's load and disk",
    "57P": "the server stops or starts: wait for it",
}

_LOGIN_WORDS = {
    "certificate": "check sslmode, sslrootcert and the certificates of both sides",
    "pg_hba.conf": _WORDS["28"],
    "password": _WORDS["28"],
    "PAM authentication failed": _WORDS["28"],
    "does not exist": "create the user or the database, or correct its name",
}
"""By words of libpq's or the server's message: libpq gives no code here."""

_AGAIN = ("08", "40001", "40P01", "55P03", "57P01", "57P02", "57P03")
"""The transaction is rolled back, and a new one may succeed."""


class OutcomeUnknownError(StoreError):
    """The connection was lost during COMMIT. Only a new start can read whether the transaction is there."""


def is_passing(error: psycopg.Error) -> bool:
    """Return True if the same transaction may succeed soon. `error` arose before its COMMIT."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(_AGAIN)


def refuses_login(error: psycopg.Error) -> bool:
    """Return True for an error of a new session that waiting does not mend.

    The server's message is in the server's language. In another one than English the error counts as passing.
    """
    return _login_words(error) is not None


def explained(title: str, error: psycopg.Error) -> StoreError:
    """Return the error with what to do about it. It is a StoreUnavailableError if waiting may mend it."""
    waits = is_passing(error) and not refuses_login(error)
    return (StoreUnavailableError if waits else StoreError)(f"{title}: {_explained(error)}")


def _explained(error: psycopg.Error) -> str:
    code = error.sqlstate
    if code is None:
        # The words are libpq's or psycopg's, or the server's about a new session: they name no data.
        said, words = _line(str(error)), _login_words(error)
        return said if words is None else f"{words}: {said}"
    said = f"{_line(error.diag.message_primary or '')} ({code})"
    for length in (5, 3, 2):
        if words := _WORDS.get(code[:length]):
            return f"{words}: {said}"
    return said


def _login_words(error: psycopg.Error) -> str | None:
    found = str(error)
    return next((words for part, words in _LOGIN_WORDS.items() if part in found), None)


def _line(text: str) -> str:
    return " ".join(text.split())[:_MAX_WORDS]
