"""The lab's faults of answers, in a short form."""

from collections.abc import Callable, Mapping
from typing import Any

from lab.github.settings import AnswerFault


def fault(
    request: str,
    status: int = 500,
    body: object = b"{}",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> AnswerFault:
    """Return a fault that answers a request that matches `METHOD path-pattern` like this."""
    return AnswerFault(
        "answer", request=request, status=status, body=body, headers=headers or {}, **more
    )


def cut(request: str, **more: Any) -> AnswerFault:
    """Return a fault that closes the connection without an answer."""
    return AnswerFault("dropped", request=request, **more)


def hang(request: str, **more: Any) -> AnswerFault:
    """Return a fault that never answers."""
    return AnswerFault("stall", request=request, **more)


def changed(
    request: str, change: Callable[[Any], Any] = lambda shown: shown, **more: Any
) -> AnswerFault:
    """Return a fault that applies a function to the JSON of each of GitHub's answers."""
    return AnswerFault("changed", request=request, change=change, **{"times": None, **more})
