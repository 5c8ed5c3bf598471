"""Long, many or slow headers: their cost before the signature is checked."""

import sys
from types import FrameType
from typing import Any, Self

import pytest

from tests.server.fronts import BODY, Front, headers


class _Calls:
    """Counts this thread's function calls inside the `with` block, C functions included."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _frame: FrameType, event: str, _what: Any) -> None:
        self.count += event in {"call", "c_call"}


@pytest.mark.case(
    "a media type with thousands of parameters, before any signature is checked",
    topic="Hostile input",
    source="CWE-407",
)
async def test_the_cost_of_a_content_type_header_grows_linearly(front: Front) -> None:
    """For each semicolon, Python's email package scans the rest of the header."""
    assert await front.send(BODY, headers(BODY)) == 202
    with _Calls() as usual:
        assert await front.send(BODY, headers(BODY)) == 200
    many = headers(BODY, type=b"application/json" + b";" * 1_500)
    with _Calls() as hostile:
        assert await front.send(BODY, many) == 200
    assert hostile.count < usual.count + 500
