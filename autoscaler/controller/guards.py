"""Rule 8 for errors that a port does not list: they become the port's own, are logged, and stop one thing.

What wraps an adapter by this may raise only what its port says, so that a bug in one edge is retried
with the growing delay of an unknown outcome instead of ending the process.
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
    """Return what the call returns. An error that is not `listed` is raised as `instead`."""
    try:
        return await call()
    except listed:
        raise
    except Exception as error:
        raise instead(log_unlisted(error)) from error


def log_unlisted(error: Exception) -> str:
    """Log an error that the port does not list, and return its text in one line."""
    _log.error("unlisted_error", error=type(error).__name__, exc_info=error)
    return f"{type(error).__name__}: {error}"[:300]
