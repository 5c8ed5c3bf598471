"""GitHub's rule for labels: it ignores their case, and a runner may run a job if it has all of its labels.

Source: docs.github.com, "Using self-hosted runners in a workflow" and "Applying labels to self-hosted runners".
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from string import ascii_lowercase, ascii_uppercase

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def label_set(labels: Iterable[str]) -> frozenset[str]:
    """Return labels as GitHub compares them: in lower case, without duplicates."""
    return frozenset(map(lower_case, labels))


def lower_case(label: str) -> str:
    """Return a label with ASCII letters in lower case.

    Labels of SKUs are ASCII. `str.lower` makes a `k` of the Kelvin sign (U+212A), which actions/runner keeps
    apart: it compares with OrdinalIgnoreCase (`CommandSettings.GetLabels`), and the sign has no upper case.
    """
    return label.translate(_LOWER)


def covers(offered: AbstractSet[str], wanted: Iterable[str]) -> bool:
    """Return True if a runner with the `offered` labels has all `wanted` ones. Both are in lower case."""
    return offered >= frozenset(wanted)
