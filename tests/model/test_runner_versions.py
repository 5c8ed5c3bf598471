"""Versions of actions/runner are read, and the oldest one in use is found."""

import pytest

from autoscaler.controller.github.runner_versions import (
    IN_USE_FOR,
    parse_version,
    version_in_use,
    version_text,
)

OLD, NEW = (2, 329, 0), (2, 331, 0)


@pytest.mark.parametrize(
    "text", ["", "2", "latest", "v2.338.0", "2.338.0-rc1", "2..0", "2.٣.0", "2." + "9" * 10, " 2.3"]
)
def test_other_text_is_no_version(text: str) -> None:
    assert parse_version(text) is None


def test_a_version_is_read_and_written() -> None:
    assert parse_version("2.338.0") == (2, 338, 0)
    assert version_text((2, 338, 0)) == "2.338.0"


def test_numbers_are_compared_as_numbers() -> None:
    assert version_in_use({(2, 100, 0): 1.0, (2, 99, 0): 1.0}) == (2, 99, 0)


def test_the_oldest_version_that_was_reported_within_a_day_is_in_use() -> None:
    assert version_in_use({}) is None
    assert version_in_use({OLD: 100.0}) == OLD
    assert version_in_use({OLD: 100.0, NEW: 100.0 + IN_USE_FOR}) == OLD
    assert version_in_use({OLD: 100.0, NEW: 101.0 + IN_USE_FOR}) == NEW
