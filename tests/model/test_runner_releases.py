"""GitHub gives a runner jobs until 30 days after the first release that is newer."""

import pytest

from autoscaler.model.runner_releases import (
    GRACE,
    IN_USE_FOR,
    RunnerRelease,
    deadline,
    parse_version,
    version_in_use,
    version_text,
)

OLD, MIDDLE, NEW = (2, 329, 0), (2, 330, 1), (2, 331, 0)
RELEASES = (RunnerRelease(NEW, 3000.0), RunnerRelease(MIDDLE, 2000.0), RunnerRelease(OLD, 1000.0))


def test_the_first_newer_release_counts_and_not_the_newest() -> None:
    assert deadline(OLD, RELEASES) == 2000.0 + GRACE
    assert deadline(MIDDLE, RELEASES) == 3000.0 + GRACE


def test_a_patch_of_an_earlier_version_counts_only_for_versions_before_it() -> None:
    patched = (RunnerRelease((2, 330, 2), 4000.0), *RELEASES)
    assert deadline(MIDDLE, patched) == 3000.0 + GRACE
    assert deadline(NEW, patched) is None


def test_a_version_without_a_newer_release_has_no_deadline() -> None:
    assert deadline(NEW, RELEASES) is None
    assert deadline((2, 400, 0), RELEASES) is None
    assert deadline(OLD, ()) is None


def test_numbers_are_compared_as_numbers() -> None:
    assert deadline((2, 99, 0), (RunnerRelease((2, 100, 0), 5.0),)) == 5.0 + GRACE


@pytest.mark.parametrize(
    "text", ["", "2", "latest", "v2.338.0", "2.338.0-rc1", "2..0", "2.٣.0", "2." + "9" * 10, " 2.3"]
)
def test_other_text_is_no_version(text: str) -> None:
    assert parse_version(text) is None


def test_a_version_is_read_and_written() -> None:
    assert parse_version("2.338.0") == (2, 338, 0)
    assert version_text((2, 338, 0)) == "2.338.0"


def test_the_oldest_version_that_was_reported_within_a_day_is_in_use() -> None:
    assert version_in_use({}) is None
    assert version_in_use({OLD: 100.0}) == OLD
    assert version_in_use({OLD: 100.0, NEW: 100.0 + IN_USE_FOR}) == OLD
    assert version_in_use({OLD: 100.0, NEW: 101.0 + IN_USE_FOR}) == NEW
