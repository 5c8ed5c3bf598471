"""What machines cost in the last days, by provider, SKU or repository, and what the money bought."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from autoscaler.model.accounting import MachineUse, Usage

MOST_ROWS = 1_000
"""Maximum number of rows in an answer: it takes 20 ms of the event loop."""


class SpendingKey(StrEnum):
    """What the rows of a table of spending are about."""

    PROVIDER = "provider"
    SKU = "sku"
    REPOSITORY = "repository"


@dataclass(frozen=True, slots=True)
class SpendingRow:
    """Dollars by what they bought (see `MachineUse`), the hours of machines, and the number of jobs.

    `ready` is idle time. `repository` is empty for time that no job used, and a key by which the table has no
    rows is empty, too.
    """

    provider: str
    sku: str
    repository: str
    dollars: float
    job: float
    boot: float
    ready: float
    end: float
    failed_launch: float
    hours: float
    jobs: int
    failed_launches: int


@dataclass(frozen=True, slots=True)
class Spending:
    """The rows, the most expensive first, and the sum of all.

    `since` is the first day, such as `2026-11-01` (UTC). `omitted` counts the cheapest rows,
    beyond `MOST_ROWS`.
    """

    since: str
    rows: tuple[SpendingRow, ...]
    omitted: int
    total: SpendingRow


_Key = tuple[str, str, str]
"""The provider, the SKU and the repository of a row."""


def spending(used: Iterable[Usage], since: int, by: Collection[SpendingKey]) -> Spending:
    """Return what machines were used for since a day, with a row for each value of the keys. O(used)."""
    everything: list[Usage] = []
    grouped: dict[_Key, list[Usage]] = {}
    for one in used:
        everything.append(one)
        grouped.setdefault(_key(one, by), []).append(one)
    rows = [_row(key, grouped[key]) for key in sorted(grouped)]
    rows.sort(key=lambda row: -row.dollars)
    return Spending(
        f"{datetime.fromtimestamp(since * 86_400, UTC):%Y-%m-%d}",
        tuple(rows[:MOST_ROWS]),
        max(0, len(rows) - MOST_ROWS),
        _row(("", "", ""), everything),
    )


def _key(one: Usage, by: Collection[SpendingKey]) -> _Key:
    return (
        one.provider if SpendingKey.PROVIDER in by else "",
        one.sku if SpendingKey.SKU in by else "",
        one.repository if SpendingKey.REPOSITORY in by else "",
    )


def _row(key: _Key, used: Iterable[Usage]) -> SpendingRow:
    dollars = dict.fromkeys(MachineUse, 0.0)
    times = dict.fromkeys(MachineUse, 0)
    seconds = 0.0
    for one in used:
        dollars[one.use] += one.dollars
        times[one.use] += one.times
        seconds += one.seconds
    return SpendingRow(
        *key,
        dollars=sum(dollars.values()),
        job=dollars[MachineUse.JOB],
        boot=dollars[MachineUse.BOOT],
        ready=dollars[MachineUse.READY],
        end=dollars[MachineUse.END],
        failed_launch=dollars[MachineUse.FAILED_LAUNCH],
        hours=seconds / 3600.0,
        jobs=times[MachineUse.JOB],
        failed_launches=times[MachineUse.FAILED_LAUNCH],
    )
