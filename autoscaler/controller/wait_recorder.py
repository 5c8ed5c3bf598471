"""Records in the history why the jobs of a demand class have no machine on its way, when this changes.

The history of jobs that are over can then say what they waited for. One row concerns all jobs of a class,
because a row for each of them would cost too much: thousands may wait for one reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.controller.journal import Journal
from autoscaler.model.demand import DemandClass
from autoscaler.model.events import WaitReasonsChanged
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.waiting import GITHUB_DECIDES, WaitCode, Waiting, WaitReason

LASTING: Seconds = 10.0
"""Reasons that change sooner are not recorded: each try to launch ends a reason for about a second."""

MOST_CLASSES = 10_000
"""Maximum number of classes in memory. Those without jobs are forgotten beyond it."""


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

    def note(self, waiting: Mapping[DemandClass, Sequence[Waiting]]) -> None:
        """Note what changed for at least `LASTING` seconds. O(classes). The next commit makes it durable.

        The reasons of a class that is new since the start are noted at once, because the store may have
        older ones.
        """
        now = self._journal.now
        for demand in [*waiting, *(self._known.keys() - waiting.keys())]:
            reasons = blocking(waiting.get(demand, ()))
            codes = tuple(reason.code for reason in reasons)
            known = self._known.setdefault(demand, _Known(codes, now))
            if codes != known.codes:
                known.codes, known.since = codes, now
            if known.recorded is None or (codes != known.recorded and now - known.since >= LASTING):
                known.recorded = codes
                self._journal.note(WaitReasonsChanged(now, demand, known.since, reasons))
        if len(self._known) > MOST_CLASSES:
            self._known = {demand: self._known[demand] for demand in waiting}


def blocking(runs: Sequence[Waiting]) -> tuple[WaitReason, ...]:
    """Return why the newest jobs of a class in line have no machine on its way. Empty if all have one."""
    in_line = (run for run in reversed(runs) if run.code not in GITHUB_DECIDES)
    return next((run.reasons for run in in_line if run.blocked), ())
