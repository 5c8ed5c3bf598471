"""A page of a list: its place in the list, and the links to its other pages and filters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from autoscaler.views.listed import Listed, Part

Row = TypeVar("Row")

AGES = {300: "5 min", 1800: "30 min", 7200: "2 h"}
"""The ages that a list of jobs has a link for, in seconds."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Row]):
    """Some rows of a list.

    `query` has the parameters of its address, and `names` what its form offers by parameter.
    """

    path: str
    query: Mapping[str, str]
    found: Listed[Row]
    part: Part
    last_page: int
    """The last page that the server answers."""
    names: Mapping[str, tuple[str, ...]]

    def chosen(self, name: str) -> str:
        """Return the value of a parameter, or an empty text."""
        return self.query.get(name, "")

    def link(self, **changed: object) -> str:
        """Return the address of the list with these parameters changed; an empty value removes one.

        Another filter begins at the first page.
        """
        query = {name: value for name, value in self.query.items() if name != "page"}
        query |= {name: str(value) for name, value in changed.items()}
        kept = urlencode({name: value for name, value in query.items() if value})
        return f"{self.path}?{kept}" if kept else self.path

    @property
    def page(self) -> int:
        """Return the number of this page, from 1."""
        return self.part.skip // self.part.limit + 1

    @property
    def pages(self) -> int:
        """Return the number of pages that can be shown."""
        return min(self.last_page, max(1, -(-self.found.total // self.part.limit)))

    @property
    def first(self) -> int:
        """Return the number of the first row, from 1."""
        return self.part.skip + 1

    @property
    def last(self) -> int:
        """Return the number of the last row."""
        return self.part.skip + len(self.found.rows)
