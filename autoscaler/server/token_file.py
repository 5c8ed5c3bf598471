"""The tokens of operators. Reads their file again when it changes.

If the new file cannot be used, logs an error and keeps the earlier tokens in use. Without a file, or with an
empty one, no token is valid: that revokes all.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from autoscaler.model.operators import Operator
from autoscaler.server.bearer import BearerTokens
from autoscaler.server.file_stamp import file_stamp, is_empty

_log = structlog.get_logger(__name__)


class UnusableTokensError(Exception):
    """A file of tokens cannot be used. The text names the file and the error, and contains no token."""


class TokenFile:
    """The tokens in `file`, which `read` reads. `read` raises UnusableTokensError."""

    def __init__(self, file: Path, read: Callable[[], Iterable[tuple[bytes, Operator]]]) -> None:
        """Read the file.

        Raises: UnusableTokensError.
        """
        self._file = file
        self._read = read
        self._stamp = file_stamp(file)
        self._tokens = BearerTokens(read())

    def tokens(self) -> BearerTokens[Operator]:
        """Return the valid tokens. Reads the file again if it changed.

        One stat(2) call per request replaces a timer: a removed token is refused from the next request on.
        """
        stamp = file_stamp(self._file)
        if stamp != self._stamp:
            # Set before the file is read, so that one bad version is logged once.
            self._stamp = stamp
            try:
                found = [] if is_empty(stamp) else list(self._read())
            except UnusableTokensError as error:
                _log.error("admin_tokens_not_reloaded", error=str(error))
            else:
                self._tokens = BearerTokens(found)
                names = sorted({f"{holder.name} ({holder.role})" for _, holder in found})
                _log.info("admin_tokens_reloaded", operators=names)
        return self._tokens
