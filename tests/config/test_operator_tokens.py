"""The file of operators' tokens."""

from contextlib import suppress
from itertools import combinations

import pytest

from autoscaler.config.files.operator_tokens import (
    LONGEST_NAME,
    parse_operator_tokens,
)
from autoscaler.config.files.regular_files import UnusableFileError

READER, OPERATOR = "a" * 70, "b" * 70
LINES = [f"{'n' * LONGEST_NAME} read {READER}", f"carol@example.com operate {OPERATOR}"]


@pytest.mark.parametrize("lines", [LINES, LINES[::-1], LINES[:1], LINES[1:]])
def test_no_part_of_a_file_allows_more_than_the_whole(lines: list[str]) -> None:
    """Such as one that was written by half, or whose beginning was lost."""
    file = "".join(f"{line}\n" for line in lines).encode()
    for start, end in combinations(range(len(file) + 1), 2):
        with suppress(UnusableFileError):
            for one in parse_operator_tokens(file[start:end]):
                # The rest of a token is as long as any token has to be.
                token = one.token.get_secret_value().decode()
                assert token in (OPERATOR if one.operator.may_operate else READER)


def test_a_name_as_long_as_a_token_is_refused() -> None:
    line = f"{'n' * (LONGEST_NAME + 1)} operate {OPERATOR}"
    with pytest.raises(UnusableFileError, match="a name in line 1 that is not 1 to 31"):
        parse_operator_tokens(line.encode())
