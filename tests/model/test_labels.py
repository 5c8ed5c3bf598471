"""Which labels are the same, and which runner has all labels of a job."""

import sys

import pytest

from autoscaler.model.jobs.labels import covers, label_set


def test_labels_are_compared_without_their_case() -> None:
    assert label_set(("GPU", "gpu", "Linux")) == {"gpu", "linux"}


def test_no_other_letter_is_taken_for_an_ascii_one() -> None:
    others = [
        letter for letter in map(chr, range(128, sys.maxunicode + 1)) if letter.lower().isascii()
    ]
    assert others, "for example the Kelvin sign"
    for letter in (*others, "\u017f", "\u0130", "\u0131", "\uff2b"):
        assert label_set((f"{letter}8s",)) == {f"{letter}8s"}


@pytest.mark.parametrize(
    ("offered", "wanted", "whether"),
    [
        ({"gpu", "linux"}, ("linux", "gpu"), True),
        ({"gpu", "linux"}, ("gpu",), True),
        ({"gpu"}, ("gpu", "linux"), False),
        ({"gpu"}, (), True),
        (set(), ("gpu",), False),
    ],
)
def test_a_runner_needs_every_label_of_the_job(
    offered: set[str], wanted: tuple[str, ...], whether: bool
) -> None:
    assert covers(offered, wanted) is whether
