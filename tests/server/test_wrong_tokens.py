"""An address may try ten different wrong tokens in a minute, and further ones after it."""

import pytest

from autoscaler.server.tokens import MOST_PEERS, MOST_WRONG, WRONG_FOR, WrongTokens

HOST = "192.0.2.1"


class Guessing:
    """Wrong tokens, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tokens = WrongTokens(lambda: self.now)
        self._number = 0

    def guess(self, host: str | None = HOST, count: int = 1) -> list[float]:
        """Send different wrong tokens, and return how long the host has to wait after each."""
        numbers = range(self._number, self._number + count)
        self._number += count
        return [self.tokens.note(host, f"guess-{number}") for number in numbers]


@pytest.fixture
def guessing() -> Guessing:
    return Guessing()


def test_after_ten_wrong_tokens_an_address_has_to_wait_until_the_minute_is_over(
    guessing: Guessing,
) -> None:
    assert guessing.guess(count=MOST_WRONG - 1) == [0.0] * (MOST_WRONG - 1)
    guessing.now += 10.0
    assert guessing.guess(count=2) == [0.0, WRONG_FOR - 10.0]
    guessing.now += WRONG_FOR - 10.0
    assert guessing.guess(count=MOST_WRONG + 1) == [0.0] * MOST_WRONG + [WRONG_FOR]


def test_further_guesses_do_not_extend_the_minute(guessing: Guessing) -> None:
    guessing.guess(count=MOST_WRONG)
    guessing.now += WRONG_FOR - 1.0
    assert guessing.guess(count=100) == [1.0] * 100


def test_one_wrong_token_that_is_repeated_and_an_empty_one_use_up_one_guess(
    guessing: Guessing,
) -> None:
    for _ in range(10 * MOST_WRONG):
        assert guessing.tokens.note(HOST, "an old token") == 0.0
        assert guessing.tokens.note(HOST, "") == 0.0
    assert guessing.guess(count=MOST_WRONG) == [0.0] * (MOST_WRONG - 1) + [WRONG_FOR]
    assert guessing.tokens.note(HOST, "") == 0.0


def test_addresses_are_separate_and_a_network_of_ipv6_is_one(guessing: Guessing) -> None:
    guessing.guess(count=MOST_WRONG)
    assert guessing.guess("192.0.2.2") == [0.0]
    assert guessing.guess(f"::ffff:{HOST}") == [WRONG_FOR]
    for number in range(MOST_WRONG):
        guessing.guess(f"2001:db8::{number}")
    assert guessing.guess("2001:db8::ffff") == [WRONG_FOR]
    assert guessing.guess("2001:db8:0:1::1") == [0.0]
    assert guessing.guess(None) == [0.0]


def test_the_memory_is_bounded(guessing: Guessing) -> None:
    guessing.guess(count=MOST_WRONG)
    for number in range(MOST_PEERS):
        assert len(guessing.tokens._tried) <= MOST_PEERS
        guessing.guess(f"peer-{number}", count=MOST_WRONG + 5)
    assert len(guessing.tokens._tried) == MOST_PEERS
    assert all(len(one.digests) == MOST_WRONG for one in guessing.tokens._tried.values())
    assert guessing.guess(f"peer-{MOST_PEERS - 1}") == [WRONG_FOR]
    assert guessing.guess() == [0.0]
