"""The token of an Authorization header."""

import pytest

from autoscaler.server.tokens import bearer_token, token_digest


def test_a_token_with_any_bytes_has_a_digest() -> None:
    """aiohttp decodes bytes that are no UTF-8 as surrogates."""
    assert token_digest("r\udcff") != token_digest("r")


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
