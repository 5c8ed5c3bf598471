"""The ideal fleet that launches are measured against: as soon as EC2's bucket allows, oldest first."""

import random

import pytest

from autoscaler.model.catalogue import Rate
from benchmarks.launch_oracle import earliest, sent_at


def test_while_tokens_are_left_every_job_gets_a_launch_request_at_once() -> None:
    accepted = [(0.0, "a"), (0.1, "b"), (0.2, "a")]
    assert earliest(accepted, Rate(3, 1.0)) == [0.0, 0.1, 0.2]


def test_without_a_token_jobs_of_a_sku_share_the_next_launch_request_oldest_first() -> None:
    accepted = [(0.0, "a"), (0.1, "b"), (0.2, "a"), (0.3, "b")]
    assert earliest(accepted, Rate(1, 0.5)) == [0.0, 2.0, 4.0, 2.0]


def test_tokens_refill_while_no_job_waits() -> None:
    assert earliest([(0.0, "a"), (10.0, "a"), (10.1, "a")], Rate(1, 0.5)) == [0.0, 10.0, 12.0]


def test_the_oracle_sends_no_more_than_the_token_bucket_allows() -> None:
    choice = random.Random(7)
    accepted, now = [], 0.0
    for _ in range(2000):
        now += choice.expovariate(50)
        accepted.append((now, f"gpu.{choice.randrange(20)}"))
    sent = sorted(set(earliest(accepted, Rate(50, 5.0))))
    for first, moment in enumerate(sent):
        within = sum(1 for other in sent[first:] if other <= moment + 10.0)
        assert within <= 50 + 5 * 10.0 + 1


def test_the_position_of_a_job_in_the_queue_decides_its_launch_request() -> None:
    accepted = [(0.0, "a"), (0.1, "a"), (0.2, "b"), (0.3, "a")]
    calls = {"a": [(2.0, 1), (1.0, 2)], "b": [(1.5, 1)]}
    assert sent_at(accepted, calls) == [1.0, 1.0, 1.5, 2.0]


def test_too_few_machines_are_an_error_of_the_measurement() -> None:
    with pytest.raises(ValueError, match="fewer machines"):
        sent_at([(0.0, "a"), (0.1, "a")], {"a": [(1.0, 1)]})
    with pytest.raises(ValueError, match="fewer machines"):
        sent_at([(0.0, "a")], {})
