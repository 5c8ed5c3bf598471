"""Headers that are long, many or slow: what they cost before any signature was looked at."""

import sys
from types import FrameType
from typing import Any, Self

import pytest

from tests.server.fronts import BODY, Front, headers


class _Calls:
    """Counts what this thread calls while it is entered, C functions included."""

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
async def test_parameters_of_the_content_type_cost_no_more_than_their_bytes(front: Front) -> None:
    """Python's email package looks at all the rest of the header for every semicolon."""
    assert await front.send(BODY, headers(BODY)) == 202
    with _Calls() as usual:
        assert await front.send(BODY, headers(BODY)) == 200
    many = headers(BODY, type=b"application/json" + b";" * 1_500)
    with _Calls() as hostile:
        assert await front.send(BODY, many) == 200
    assert hostile.count < usual.count + 500
