"""The token of an Authorization header."""

import pytest

from autoscaler.server.bearer import bearer_token


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        (["Bearer abc"], "abc"),
        (["bearer abc"], "abc"),
        (["Bearer two words"], "two words"),
        (["Bearer "], ""),
        (["Bearer"], ""),
        (["Basic abc"], ""),
        (["abc"], ""),
        ([], ""),
        (["Bearer abc", "Bearer abc"], ""),
    ],
)
def test_the_token_is_what_follows_the_scheme_of_the_only_header(
    headers: list[str], token: str
) -> None:
    assert bearer_token(headers) == token
