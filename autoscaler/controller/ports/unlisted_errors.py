"""Turns errors that a port does not list into the port's own errors, and logs them (rule 8).

A bug in one adapter is then retried with a growing delay and does not stop the process.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

_log = structlog.get_logger(__name__)


def raises_only(
    listed: tuple[type[Exception], ...],
    instead: Callable[[str], Exception],
    **others: Callable[[str], Exception],
) -> Callable[[type[T]], type[T]]:
    """Return a decorator for the class of an adapter: its public coroutines raise only `listed` errors.

    The same holds for asynchronous generators. Any other error becomes `instead` of its text, or what `others`
    has for the method of this name.
    """

    def decorate(adapter: type[T]) -> type[T]:
        for name, method in vars(adapter).copy().items():
            if not name.startswith("_"):
                setattr(adapter, name, _translated(method, listed, others.get(name, instead)))
        return adapter

    return decorate


def _translated(
    method: Any, listed: tuple[type[Exception], ...], instead: Callable[[str], Exception]
) -> Any:
    """Return a method that raises only listed errors; anything but an asynchronous method as it is."""

    @contextmanager
    def translating() -> Iterator[None]:
        try:
            yield
        except listed:
            raise
        except Exception as error:
            _log.error("unexpected_error", error=type(error).__name__, exc_info=error)
            raise instead(f"{type(error).__name__}: {error}"[:300]) from error

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def call(*arguments: Any, **named: Any) -> Any:
            with translating():
                return await method(*arguments, **named)

        return call
    if inspect.isasyncgenfunction(method):

        @wraps(method)
        async def pages(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
            with translating():
                async for page in method(*arguments, **named):
                    yield page

        return pages
    return method
