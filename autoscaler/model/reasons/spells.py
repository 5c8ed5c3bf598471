"""Faults over time: when each began and ended, and how many jobs it held up.

`compared` is pure: the caller says which faults there are, and when.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.reasons.faults import key_of

KIND, RECORD = "fault", "all"
"""The history of all faults, so that one question has them in order."""

GONE_AFTER: Seconds = 300.0
"""A fault that comes back sooner never ended: it is one row, however often it flaps."""

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
    """A fault that lasts, and when it was there last."""

    spell: FaultSpell
    seen_at: Instant


Open = Mapping[str, OpenFault]


def compared(
    known: Open, seen: Iterable[FaultSpell], now: Instant, room: int
) -> tuple[Open, list[FaultSpell]]:
    """Return the faults that last, and those that began or ended since the last look.

    `seen` are the faults of now, the most urgent first, of which at most `room` may be new: others are left for
    a later look. A fault ends at the moment at which it was there last. O(known + seen).
    """
    lasting, changed = dict(known), list[FaultSpell]()
    for spell in seen:
        before = lasting.get(spell.key)
        if before is not None:
            more = spell.jobs > before.spell.jobs
            spell = replace(spell, began=before.spell.began) if more else before.spell
        elif len(changed) < room:
            changed.append(spell)
        else:
            continue
        lasting[spell.key] = OpenFault(spell, now)
    for key, one in known.items():
        if lasting[key].seen_at < now and now - one.seen_at >= GONE_AFTER:
            changed.append(replace(one.spell, ended=one.seen_at))
            del lasting[key]
    return lasting, changed


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
