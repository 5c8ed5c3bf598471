"""A part of a list, with what the whole list comes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Part:
    """Which rows of a list to return: at most `limit`, after the first `skip`."""

    skip: int
    limit: int


@dataclass(frozen=True, slots=True)
class Listed(Generic[Row]):
    """Some rows of a list, and the number of all its rows.

    `counts` is the number of rows by what the list can be narrowed to: the reason codes of jobs, or the states
    of machines. It does not depend on the code or state that was asked for.
    """

    rows: list[Row]
    total: int
    counts: Mapping[str, int]
