"""Faults over time: begins, ends and flaps."""

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.model.reasons.spells import (
    GONE_AFTER,
    FaultSpell,
    Open,
    compared,
    row_of,
    spells_of,
)

QUOTA = FaultSpell("quota", "gpu", "the quota is used up", 0.0)
SLOW = FaultSpell("store_slow", "", "slow", 0.0)


def at(now: float, *spells: FaultSpell) -> tuple[list[FaultSpell], float]:
    return [replace(one, began=now) for one in spells], now


def played(*looks: tuple[list[FaultSpell], float], room: int = 9) -> list[FaultSpell]:
    known: Open = {}
    changes: list[FaultSpell] = []
    for seen, now in looks:
        known, changed = compared(known, seen, now, room)
        changes += changed
    return changes


def test_a_fault_has_a_begin_and_ends_when_it_was_there_last() -> None:
    looks = [at(100.0, QUOTA), at(110.0, QUOTA), at(120.0), at(110.0 + GONE_AFTER)]
    began = replace(QUOTA, began=100.0)
    assert played(*looks[:-1]) == [began]
    assert played(*looks) == [began, replace(began, ended=110.0)]


def test_a_fault_that_flaps_is_one_and_one_that_comes_back_later_is_another() -> None:
    flaps = [look for k in range(5) for look in (at(100.0 * k, QUOTA), at(100.0 * k + 50.0))]
    assert played(*flaps) == [replace(QUOTA, began=0.0)]
    again = 400.0 + GONE_AFTER
    changes = played(*flaps, at(again), at(again + 1.0, QUOTA))
    assert [(one.began, one.ended) for one in changes] == [
        (0.0, None),
        (0.0, 400.0),
        (again + 1.0, None),
    ]


def test_a_fault_that_is_gone_and_seen_at_once_goes_on() -> None:
    assert len(played(at(0.0, QUOTA), at(GONE_AFTER, QUOTA))) == 1


def test_a_fault_remembers_its_worst_moment() -> None:
    looks = [
        at(10.0 * k, replace(QUOTA, jobs=jobs, message=f"{jobs} jobs"))
        for k, jobs in enumerate((3, 8, 5))
    ]
    ended = played(*looks, at(1000.0))[-1]
    assert (ended.began, ended.jobs, ended.message) == (0.0, 8, "8 jobs")


def test_faults_of_one_code_differ_by_what_they_are_about() -> None:
    other = replace(QUOTA, about="cpu")
    assert len(played(at(0.0, QUOTA, other, SLOW))) == 3


def test_no_more_faults_begin_than_there_is_room_for_and_the_others_later() -> None:
    assert played(at(5.0, QUOTA, SLOW), room=1) == [replace(QUOTA, began=5.0)]
    assert played(at(5.0, QUOTA, SLOW), at(6.0, QUOTA, SLOW), room=1) == [
        replace(QUOTA, began=5.0),
        replace(SLOW, began=6.0),
    ]
    assert played(at(5.0, QUOTA), at(999.0), room=0) == []


def rows_give(*spells: FaultSpell) -> Sequence[FaultSpell]:
    return spells_of(map(row_of, spells))


def test_rows_give_the_faults_back_the_newest_first() -> None:
    ended = replace(QUOTA, began=10.0, ended=20.0, jobs=4)
    lasting = replace(SLOW, began=15.0)
    assert rows_give(replace(ended, ended=None), lasting, ended) == [lasting, ended]
    # The begin may be the later row: a store of another order, or a page that has lost it.
    assert rows_give(ended, replace(ended, ended=None)) == [ended]
    assert rows_give(ended) == [ended]
    (long,) = rows_give(replace(SLOW, message="x" * 1000))
    assert long.message == "x" * 300
