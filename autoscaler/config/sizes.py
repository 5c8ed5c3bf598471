"""Refuses a fleet.yaml with more SKUs or schedules than the checks and the planner can handle quickly.

Comes before all other checks, because some of them compare every SKU with every other one.
"""

from collections.abc import Iterator

from autoscaler.config.document import Document
from autoscaler.config.problems import Problem

MAX_SKUS = 1000
"""Maximum number of SKUs. All checks together then take about a second."""

MAX_SCHEDULES = 300
"""Maximum number of schedules of all SKUs. Finding those in force takes about 15 ms once a minute."""


def check_sizes(document: Document) -> Iterator[Problem]:
    """Return an error for each bound that the file exceeds."""
    skus = document.root.child("skus")
    entries = list(skus.entries()) if skus else []
    if len(entries) > MAX_SKUS:
        what = f"has {len(entries)} SKUs, and {MAX_SKUS} are allowed"
        yield document.problem(("skus",), what, "remove some, or run a second fleet")
    schedules = (sku.get("idle", "schedule") for _, sku in entries)
    count = sum(len(list(one.items())) for one in schedules if one is not None)
    if count > MAX_SCHEDULES:
        what = f"has {count} entries of idle.schedule in all SKUs, and {MAX_SCHEDULES} are allowed"
        yield document.problem(("skus",), what, "remove some of them")
