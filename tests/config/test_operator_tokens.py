"""The file of operators' tokens."""

from contextlib import suppress

import pytest

from autoscaler.config.files.operator_tokens import (
    LONGEST_NAME,
    UnusableTokenFileError,
    parse_operator_tokens,
)

TOKENS = [letter * 40 for letter in "abc"]
FILE = "\n".join(
    [
        f"{'n' * LONGEST_NAME} read {TOKENS[0]}",
        f"carol@example.com operate {TOKENS[1]}",
        TOKENS[2],
        "",
    ]
).encode()


def test_a_file_that_was_cut_off_makes_no_name_a_token() -> None:
    for length in range(len(FILE)):
        with suppress(UnusableTokenFileError):
            found = parse_operator_tokens(FILE[:length])
            # The rest of a token is as long as any token has to be.
            assert all(
                any(whole.startswith(one.token.get_secret_value().decode()) for whole in TOKENS)
                for one in found
            )


def test_a_name_as_long_as_a_token_is_refused() -> None:
    line = f"{'n' * (LONGEST_NAME + 1)} operate {TOKENS[0]}"
    with pytest.raises(UnusableTokenFileError, match="a name in line 1 that is not 1 to 31"):
        parse_operator_tokens(line.encode())
