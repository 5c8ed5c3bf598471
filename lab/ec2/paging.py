"""Pages of a list: MaxResults, and a NextToken that continues after the last listed resource.

Resources that appear or disappear between pages do not move the others.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from lab.ec2.query import Ec2Error, Tree, answer, element, whole_number

Thing = TypeVar("Thing")
MOST = 1000
START = -1
"""The number after which a list continues whose token points to its beginning."""


def page_of(
    params: Tree,
    things: Iterable[Thing],
    number: Callable[[Thing], int],
    smallest: int = 5,
) -> tuple[list[Thing], str]:
    """Return the requested page and its `nextToken` element. `number` returns an ascending number.

    Raises Ec2Error.
    """
    paged = "MaxResults" in params
    size = whole_number(params.text("MaxResults"), "MaxResults", smallest, MOST) if paged else None
    after = _read(params.text("NextToken")) if "NextToken" in params else START
    rest = [thing for thing in things if number(thing) > after]
    page = rest[:size]
    more = len(rest) > len(page)
    return page, element("nextToken", _token(number(page[-1]))) if more else ""


def empty_page(action: str, results: str, params: Tree) -> str:
    """Return an answer without a result, whose token continues where this request began.

    `results` is the element that the action's results stand in.
    """
    token = params.text("NextToken") or _token(START)
    return answer(action, element(results, []) + element("nextToken", token))


def _token(number: int) -> str:
    return base64.urlsafe_b64encode(f"after {number}".encode()).decode()


def _read(token: str) -> int:
    try:
        word, _, number = base64.urlsafe_b64decode(token).decode().partition(" ")
    except (binascii.Error, ValueError):
        word, number = "", ""
    if (word, number) == ("after", str(START)):
        return START
    if word != "after" or not (number.isascii() and number.isdecimal()):
        raise Ec2Error("InvalidNextToken", "The token is not valid")
    return int(number[:18])
