"""Turns errors that a port does not list into the port's own errors, and logs them (rule 8).

A bug in one adapter is then retried with a growing delay and does not stop the process.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def guard(
    call: Callable[[], Awaitable[T]],
    listed: type[Exception] | tuple[type[Exception], ...],
    instead: Callable[[str], Exception],
) -> T:
    """Return the result of `call`. Raise an error that is not `listed` as `instead`."""
    try:
        return await call()
    except listed:
        raise
    except Exception as error:
        raise instead(log_unlisted(error)) from error


def log_unlisted(error: Exception) -> str:
    """Log an error that the port does not list. Return its text in one line."""
    _log.error("unexpected_error", error=type(error).__name__, exc_info=error)
    return f"{type(error).__name__}: {error}"[:300]
