"""Explains wrong options of a command in plain words: typer passes on the words of pydantic."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Context


class PlainGroup(TyperGroup):
    """A group of commands whose errors, and those of groups in it, are in plain words."""

    def invoke(self, ctx: "Context") -> Any:
        """Run the command that the arguments name."""
        with _plain_words():
            return super().invoke(ctx)


class PlainCommand(TyperCommand):
    """A command without a group whose errors are in plain words."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Read the arguments."""
        with _plain_words():
            return super().parse_args(ctx, args)


@contextmanager
def _plain_words() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        error.message = _explained(error)
        raise


def _explained(error: typer.BadParameter) -> str:
    from pydantic import ValidationError

    from autoscaler.config.reading.wording import phrase

    if not isinstance(error.__cause__, ValidationError):
        return error.message
    first = error.__cause__.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return phrase(first)
    return f"it {phrase(first)}, not {first['input']!r}."
