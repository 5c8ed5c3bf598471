"""A count and its noun agree."""

import pytest

from autoscaler.model.wording import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "machine", "0 machines"),
        (1, "machine", "1 machine"),
        (2, "machine", "2 machines"),
        (1, "retry", "1 retry"),
        (3, "retry", "3 retries"),
        (1, "launch request", "1 launch request"),
    ],
)
def test_a_count_of_one_is_in_the_singular(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
