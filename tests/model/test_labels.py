"""Which labels are the same, and which runner has all labels of a job."""

import pytest

from autoscaler.model.labels import covers, label_set


def test_labels_are_compared_without_their_case() -> None:
    assert label_set(("GPU", "gpu", "Linux")) == {"gpu", "linux"}


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
