"""The exponential delay between tries."""

import pytest

from autoscaler.model.backoff import Backoff


def test_the_delay_doubles_with_each_failure_up_to_the_longest() -> None:
    backoff = Backoff(5.0, 60.0)
    assert [backoff.delay(failures) for failures in range(6)] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


@pytest.mark.parametrize("failures", [17, 1024, 10**9])
def test_no_number_of_failures_is_too_large(failures: int) -> None:
    assert Backoff(5.0, 60.0).delay(failures) == 60.0
