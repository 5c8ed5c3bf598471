"""Finds a small part of a schedule that still fails: delta debugging (Zeller, Hildebrandt 2002).

Removes jobs and faults, in ever smaller parts, as long as the rest still fails.
"""

from collections.abc import Callable
from itertools import chain

from autoscaler.simulator.world.schedule import Fault, JobArrival, Schedule

Happening = Fault | JobArrival


def shrink(
    schedule: Schedule, goes_wrong: Callable[[Schedule], bool], tries: int = 400
) -> Schedule:
    """Return a part of `schedule` that still fails, from which no single job or fault can be removed.

    Plays `tries` schedules at most, and returns the smallest one found by then.
    """
    search = _Search(schedule, goes_wrong, tries)
    # Faults first: with fewer of them every later try is quicker.
    kept = search.least([*schedule.faults], [*schedule.jobs])
    jobs = search.least([*schedule.jobs], kept)
    kept = search.least(kept, jobs)
    return search.only([*kept, *jobs])


class _Search:
    def __init__(
        self, schedule: Schedule, goes_wrong: Callable[[Schedule], bool], tries: int
    ) -> None:
        self._schedule = schedule
        self._goes_wrong = goes_wrong
        self._left = tries

    def only(self, kept: list[Happening]) -> Schedule:
        """Return the schedule with these jobs and faults only."""
        everything: frozenset[Happening] = frozenset((*self._schedule.jobs, *self._schedule.faults))
        return self._schedule.without(everything - frozenset(kept))

    def least(self, things: list[Happening], beside: list[Happening]) -> list[Happening]:
        """Return a small part of `things` that still fails together with `beside`."""
        parts = 2
        while things and self._left > 0:
            size = max(1, len(things) // parts)
            chunks = [things[start : start + size] for start in range(0, len(things), size)]
            rest = next(
                (
                    rest
                    for n in range(len(chunks))
                    if self._wrong(rest := _others(chunks, n), beside)
                ),
                None,
            )
            if rest is not None:
                things, parts = rest, max(2, parts - 1)
            elif size == 1:
                break
            else:
                parts = min(len(things), 2 * parts)
        return things

    def _wrong(self, things: list[Happening], beside: list[Happening]) -> bool:
        self._left -= 1
        return self._left >= 0 and self._goes_wrong(self.only([*things, *beside]))


def _others(chunks: list[list[Happening]], skipped: int) -> list[Happening]:
    return list(chain.from_iterable(c for n, c in enumerate(chunks) if n != skipped))
