"""Records in the history why the jobs of a demand class have no machine on its way, when this changes.

The history of jobs that are over can then say what they waited for. One row concerns all jobs of a class,
because a row for each of them would cost too much: thousands may wait for one reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.controller.journal import Journal
from autoscaler.ledger.records.class_cache import MOST_CLASSES
from autoscaler.model.events import WaitReasonsChanged
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.reasons.table import GITHUB_DECIDES, WaitCode
from autoscaler.model.reasons.waiting import Waiting, WaitReason

LASTING: Seconds = 10.0
"""Reasons that change sooner are not recorded: each try to launch ends a reason for about a second."""


@dataclass(slots=True)
class _Known:
    codes: tuple[WaitCode, ...]
    since: Instant
    recorded: tuple[WaitCode, ...] | None = None


class WaitRecorder:
    """Compares the reasons of each plan with those that are recorded."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[DemandClass, _Known] = {}
        self._settled: set[DemandClass] = set()
        """Classes without waiting jobs whose last row has no reasons. Emptied at `MOST_CLASSES`."""

    def note(self, waiting: Mapping[DemandClass, Sequence[Waiting]]) -> None:
        """Note what changed for at least `LASTING` seconds. The next commit makes it durable.

        The reasons of a class that is new since the start are noted at once, because the store may have
        older ones. O(classes with waiting jobs, now and in the last `LASTING` seconds).
        """
        now = self._journal.now
        for demand in [*waiting, *(self._known.keys() - waiting.keys())]:
            reasons = blocking(waiting.get(demand, ()))
            codes = tuple(reason.code for reason in reasons)
            known = self._known.get(demand) or self._begin(demand, codes, now)
            if codes != known.codes:
                known.codes, known.since = codes, now
            if known.recorded is None or (codes != known.recorded and now - known.since >= LASTING):
                known.recorded = codes
                self._journal.note(WaitReasonsChanged(now, demand, known.since, reasons))
            if demand not in waiting and not codes and known.recorded == codes:
                self._settle(demand)

    def _begin(self, demand: DemandClass, codes: tuple[WaitCode, ...], now: Instant) -> _Known:
        recorded = () if demand in self._settled else None
        self._settled.discard(demand)
        known = self._known[demand] = _Known(codes, now, recorded)
        return known

    def _settle(self, demand: DemandClass) -> None:
        del self._known[demand]
        if len(self._settled) >= MOST_CLASSES:
            self._settled.clear()
        self._settled.add(demand)


def blocking(runs: Sequence[Waiting]) -> tuple[WaitReason, ...]:
    """Return why the newest jobs of a class in line have no machine on its way. Empty if all have one."""
    in_line = (run for run in reversed(runs) if run.code not in GITHUB_DECIDES)
    return next((run.reasons for run in in_line if run.blocked), ())
