"""Where a PostgreSQL store is, and how a session with it begins."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.postgresql.session import Session

PASSWORD_FILE = "password_file"  # noqa: S105 - the name of a parameter
IAM_REGION = "iam_region"

_OURS = (PASSWORD_FILE, IAM_REGION)

_DEFAULTS: dict[str, str | int] = {
    "application_name": "gpu-runner-autoscaler",
    "connect_timeout": 5,
    # A server that vanished without a word is noticed within 20 seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Parameters of libpq that the URL may change (postgresql.org/docs/current/libpq-connect.html)."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server and its database. `title` is what messages call it, without user and parameters."""

    url: str
    title: str
    password_file: Path | None
    iam_region: str | None = None

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Return the address that a URL names.

        Beside libpq's parameters it may have `password_file`, or `iam_region`: the region of an RDS database
        whose user has an IAM identity.

        Raises: StoreError, without the URL.
        """
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True)
            rest = urlencode([one for one in query if one[0] not in _OURS], quote_via=quote)
            known = conninfo_to_dict(plain := urlunsplit(parts._replace(query=rest)))
        except (ValueError, psycopg.Error) as error:
            # libpq's message may contain the part of the URL that it did not understand.
            raise StoreError(
                "not the URL of a PostgreSQL database: write postgresql://USER@HOST/DATABASE"
            ) from (error if isinstance(error, ValueError) else None)
        ours = {name: value for name, value in query if name in _OURS}
        if len(ours) > 1:
            raise StoreError(f"the URL of the database has {' and '.join(_OURS)}: keep one of them")
        file, region = (ours.get(name) for name in _OURS)
        if region is not None and str(known.get("host") or "/").startswith("/"):
            raise StoreError(f"the URL of the database has {IAM_REGION}, but no host of Amazon RDS")
        host = parts.netloc.rpartition("@")[2]
        title = f"postgresql://{host}{parts.path}"
        return cls(plain, title, Path(file) if file else None, region)

    def connect(self) -> Session:
        """Open a session in which each statement is its own transaction. Reads the password file again.

        Raises: psycopg.Error, and StoreError without a password.
        """
        return Session.open(make_conninfo("", **self.parameters()))

    def parameters(self) -> dict[str, str | int]:
        """Return libpq's parameters, with the present password. Raises: StoreError without one."""
        found = {
            key: value for key, value in conninfo_to_dict(self.url).items() if value is not None
        }
        if self.password_file is not None:
            found["password"] = self._password(self.password_file)
        if self.iam_region is not None:
            from autoscaler.store.postgresql.rds import iam_password

            where = str(found.get("host", "")), str(found.get("port", "5432"))
            found["password"] = iam_password(self.iam_region, *where, str(found.get("user", "")))
            found.setdefault("sslmode", "require")  # RDS takes such a password over TLS only
        return {**_DEFAULTS, **found}

    def _password(self, file: Path) -> str:
        try:
            return file.read_text().rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise StoreError(
                f"{self.title}: {PASSWORD_FILE} {file} cannot be read: {why}"
            ) from error
