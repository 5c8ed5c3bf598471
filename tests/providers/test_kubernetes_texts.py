"""Texts of a cluster are bounded, and keep what explains an error."""

import string

import pytest

from autoscaler.providers.kubernetes.api.texts import without_middle

TEXT = string.ascii_letters * 10


@pytest.mark.parametrize("most", [130, 200, len(TEXT) - 1])
def test_a_long_text_keeps_its_beginning_and_its_end_and_uses_the_whole_bound(most: int) -> None:
    cut = without_middle(TEXT, most)
    beginning, end = cut.split(" ... ")
    assert len(cut) == most
    assert TEXT.startswith(beginning)
    assert TEXT.endswith(end)
    assert end


def test_a_text_within_the_bound_is_not_changed() -> None:
    assert without_middle(TEXT, len(TEXT)) == TEXT
