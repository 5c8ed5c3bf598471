"""Faults over time: when each began and ended, how many jobs it held up, and how it develops.

All functions are pure: the caller says which faults there are, and when.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.reasons.faults import Fault, Trend, key_of

KIND, RECORD = "fault", "all"
"""The history of all faults, so that one question has them in order."""

GONE_AFTER: Seconds = 300.0
"""A fault that comes back sooner never ended: it is one row, however often it flaps."""

COMPARED: Seconds = 300.0
"""The trend compares the jobs of now with those of so long ago, or of the fault's beginning."""

PRECEDES: Seconds = 600.0
"""A fault that began at most so long before another one of the same SKUs is named with it."""

_MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class FaultSpell:
    """A fault from its begin to its end (Unix seconds); `ended` is None while it lasts.

    `code` and `about` are those of the fault. `jobs` is the most jobs that waited because of it, as far as the
    controller knows since its start, and `message` is from that moment.
    """

    code: str
    about: str
    message: str
    began: Instant
    ended: Instant | None = None
    jobs: int = 0

    @property
    def key(self) -> str:
        """Return what stays the same while a fault lasts."""
        return key_of(self.code, self.about)


@dataclass(frozen=True, slots=True)
class OpenFault:
    """A fault that lasts, and when it was there last.

    `is_recorded` if the history has its begin. `fault` is None until it was seen since the controller's start.
    `jobs` has the number of its jobs at the looks that its trend needs, oldest first.
    """

    spell: FaultSpell
    seen_at: Instant
    is_recorded: bool = True
    fault: Fault | None = None
    jobs: tuple[tuple[Instant, int], ...] = ()

    def seen(self, fault: Fault, now: Instant) -> "OpenFault":
        """Return this fault as it is now."""
        spell = self.spell
        if fault.jobs > spell.jobs:
            spell = replace(spell_of(fault, now), began=spell.began)
        jobs = (*self.jobs, (now, fault.jobs))
        first = sum(at <= now - COMPARED for at, _ in jobs[1:])
        return replace(self, spell=spell, seen_at=now, fault=fault, jobs=jobs[first:])


Open = Mapping[str, OpenFault]


def compared(
    known: Open, seen: Iterable[Fault], now: Instant, room: int
) -> tuple[Open, list[FaultSpell]]:
    """Return the faults that last, and those to record: they began or ended since the last look.

    `seen` are the faults of now, the most urgent first. At most `room` begins are recorded: those of others are
    left for a later look. A fault ends at the moment at which it was there last. O(known + seen).
    """
    lasting, changed = dict(known), list[FaultSpell]()
    for fault in seen:
        new = OpenFault(spell_of(fault, now), now, is_recorded=False)
        one = lasting.get(fault.key, new).seen(fault, now)
        if not one.is_recorded and len(changed) < room:
            changed.append(one.spell)
            one = replace(one, is_recorded=True)
        lasting[fault.key] = one
    for key, one in known.items():
        if lasting[key].seen_at < now and now - one.seen_at >= GONE_AFTER:
            if one.is_recorded:
                changed.append(replace(one.spell, ended=one.seen_at))
            del lasting[key]
    return lasting, changed


def with_times(known: Open, faults: Iterable[Fault], now: Instant) -> tuple[Fault, ...]:
    """Return these faults with their beginning, their trend and the fault that began just before.

    A fault that is not known begins now, and one that has recovered has no beginning.
    """
    return tuple(_with_times(known, fault, now) for fault in faults)


def _with_times(known: Open, fault: Fault, now: Instant) -> Fault:
    own = known.get(fault.key)
    if own is None and fault.recovered_at is not None:
        return fault
    since = own.spell.began if own is not None else now
    before = max(
        (one for one in known.values() if _precedes(one, fault, since)),
        key=lambda one: one.spell.began,
        default=None,
    )
    after = before.fault.name if before is not None and before.fault is not None else ""
    return replace(fault, since=since, trend=_trend(own, fault.jobs), after=after)


def _trend(own: OpenFault | None, jobs: int) -> Trend:
    before = own.jobs[0][1] if own is not None and own.jobs else jobs
    if jobs == before:
        return Trend.STEADY
    return Trend.GROWING if jobs > before else Trend.SHRINKING


def _precedes(one: OpenFault, other: Fault, since: Instant) -> bool:
    """Return True if a fault began just before another one, and concerns its SKUs or the whole fleet."""
    if one.fault is None or not 0.0 < since - one.spell.began <= PRECEDES:
        return False
    return not one.fault.skus or not set(one.fault.skus).isdisjoint(other.skus)


def spell_of(fault: Fault, began: Instant) -> FaultSpell:
    """Return the spell of a fault that began at this moment."""
    return FaultSpell(fault.code, fault.about, fault.message, began, jobs=fault.jobs)


def row_of(spell: FaultSpell) -> HistoryRow:
    """Return the row of history for the begin of a fault, or for its end."""
    short = replace(spell, message=spell.message[:_MOST_WORDS])
    event, at = ("began", spell.began) if spell.ended is None else ("ended", spell.ended)
    return HistoryRow(at, KIND, RECORD, event, json.dumps(asdict(short)), spell.code)


def spells_of(rows: Iterable[HistoryRow]) -> list[FaultSpell]:
    """Return the faults of these rows, those that began last first. The row of an end is the last word."""
    found: dict[tuple[str, Instant], FaultSpell] = {}
    for row in rows:
        spell = _spell(row)
        known = found.get((spell.key, spell.began))
        if known is None or known.ended is None:
            found[(spell.key, spell.began)] = spell
    return sorted(found.values(), key=lambda one: one.began, reverse=True)


def _spell(row: HistoryRow) -> FaultSpell:
    values: dict[str, Any] = json.loads(row.detail)
    return FaultSpell(**{one.name: values[one.name] for one in fields(FaultSpell)})
