"""GitHub's rule for labels: it ignores their case, and a runner may run a job if it has all of its labels.

Source: docs.github.com, "Using self-hosted runners in a workflow".
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet


def label_set(labels: Iterable[str]) -> frozenset[str]:
    """Return labels as GitHub compares them: in lower case, without duplicates."""
    return frozenset(label.lower() for label in labels)


def covers(offered: AbstractSet[str], wanted: Iterable[str]) -> bool:
    """Return True if a runner with the `offered` labels has all `wanted` ones. Both are in lower case."""
    return offered >= frozenset(wanted)
