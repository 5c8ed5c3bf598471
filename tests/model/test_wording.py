"""A count and its noun agree, and a sentence has one full stop."""

import pytest

from autoscaler.model.wording import counted, sentence


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a limit is reached", "a limit is reached."),
        ("There is no capacity left in us-east-1a.", "There is no capacity left in us-east-1a."),
        ("What is wrong?", "What is wrong?"),
    ],
)
def test_a_sentence_has_one_full_stop(text: str, shown: str) -> None:
    assert sentence(text) == shown
