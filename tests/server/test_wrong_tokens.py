"""An address may try ten different wrong tokens in a minute, and a valid one again after it."""

import pytest

from autoscaler.server.wrong_tokens import (
    MOST,
    MOST_PEERS,
    WINDOW,
    TooManyWrongTokensError,
    WrongTokens,
)

HOST = "192.0.2.1"


class Guessing:
    """Wrong tokens, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tokens = WrongTokens(lambda: self.now)
        self._number = 0

    def guess(self, host: str = HOST, count: int = 1) -> None:
        for _ in range(count):
            self._number += 1
            self.tokens.note(host, f"guess-{self._number}")

    def wait(self, host: str | None = HOST) -> float:
        """Return how long the host has to wait."""
        try:
            self.tokens.check(host)
        except TooManyWrongTokensError as error:
            return error.retry_after
        return 0.0


@pytest.fixture
def guessing() -> Guessing:
    return Guessing()


def test_the_eleventh_token_is_not_checked_until_the_minute_is_over(guessing: Guessing) -> None:
    guessing.guess(count=MOST - 1)
    assert guessing.wait() == 0.0
    guessing.now += 10.0
    guessing.guess()
    assert guessing.wait() == WINDOW - 10.0
    guessing.now += WINDOW - 10.0
    assert guessing.wait() == 0.0
    guessing.guess(count=MOST - 1)
    assert guessing.wait() == 0.0
    guessing.guess()
    assert guessing.wait() == WINDOW


def test_further_guesses_do_not_extend_the_minute(guessing: Guessing) -> None:
    guessing.guess(count=MOST)
    guessing.now += WINDOW - 1.0
    guessing.guess(count=100)
    assert guessing.wait() == 1.0


def test_one_wrong_token_that_is_repeated_and_an_empty_one_exclude_no_other(
    guessing: Guessing,
) -> None:
    for _ in range(10 * MOST):
        guessing.tokens.note(HOST, "an old token")
        guessing.tokens.note(HOST, "")
    assert guessing.wait() == 0.0


def test_addresses_are_separate_and_a_network_of_ipv6_is_one(guessing: Guessing) -> None:
    guessing.guess(count=MOST)
    assert guessing.wait("192.0.2.2") == 0.0
    assert guessing.wait(f"::ffff:{HOST}") == WINDOW
    for number in range(MOST):
        guessing.guess(f"2001:db8::{number}")
    assert guessing.wait("2001:db8::ffff") == WINDOW
    assert guessing.wait("2001:db8:0:1::1") == 0.0
    assert guessing.wait(None) == 0.0


def test_the_memory_is_bounded(guessing: Guessing) -> None:
    guessing.guess(count=MOST)
    for number in range(MOST_PEERS):
        assert len(guessing.tokens._tried) <= MOST_PEERS
        guessing.guess(f"peer-{number}", count=MOST + 5)
    assert guessing.wait() == 0.0
    assert guessing.wait("peer-0") == WINDOW
    assert len(guessing.tokens._tried) == MOST_PEERS
    assert all(len(one.digests) == MOST for one in guessing.tokens._tried.values())
