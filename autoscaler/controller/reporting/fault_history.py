"""Remembers faults: since when each lasts, for the console, and in the history when each began and ended."""

from collections.abc import Callable, Sequence

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Store
from autoscaler.model.events import FaultChanged
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.spells import (
    KIND,
    RECORD,
    FaultSpell,
    Open,
    OpenFault,
    compared,
    spells_of,
    with_times,
)

LOOK_EVERY: Seconds = 10.0
"""How often the faults of now are compared with those before: it takes 3 ms with 66 SKUs."""

MOST_ROWS = 2_000
"""Maximum number of rows that one answer reads."""

MOST_A_DAY = 500
"""Maximum number of faults that are recorded in a day: 30 days have 30,000 rows at most, 15 MB."""

MOST_LASTING = 500
"""Maximum number of faults that are recorded at a time."""

DAY: Seconds = 86_400.0


class FaultHistory:
    """Compares the faults of now with those that last. Call `resume` before its task runs."""

    def __init__(
        self, journal: Journal, store: Store, faults: Callable[[], Sequence[Fault]], clock: Clock
    ) -> None:
        """`faults` returns those of now."""
        self._journal = journal
        self._store = store
        self._faults = faults
        self._clock = clock
        self._lasting: Open = {}
        self._day: Instant = 0.0
        self._begun = 0

    async def resume(self) -> None:
        """Continue with the faults that lasted when the controller stopped. Raises StoreError."""
        now = self._journal.now
        lasting = [one for one in await recorded_faults(self._store) if one.ended is None]
        self._lasting = {one.key: OpenFault(one, now) for one in lasting}

    async def run(self) -> None:
        """Look at the faults every ten seconds, until cancelled. Raises StoreError."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_EVERY)

    async def look(self) -> None:
        """Record which faults began or ended since the last look. O(classes + SKUs x states)."""
        now = self._journal.now
        if not 0.0 <= now - self._day < DAY:
            self._day, self._begun = now, 0
        recorded = sum(one.is_recorded for one in self._lasting.values())
        room = min(MOST_LASTING - recorded, MOST_A_DAY - self._begun)
        seen = [fault for fault in self._faults() if fault.recovered_at is None]
        self._lasting, changed = compared(self._lasting, seen, now, room)
        self._begun += sum(spell.ended is None for spell in changed)
        if changed:
            self._journal.note(*(FaultChanged(now, spell) for spell in changed))
            await self._journal.commit()

    def with_times(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        """Return the faults of now with their beginning, their trend and what began just before them."""
        return with_times(self._lasting, faults, self._journal.now)


async def recorded_faults(store: Store) -> list[FaultSpell]:
    """Return the faults of the last 30 days, those that began last first. Raises StoreError."""
    return spells_of(await store.history(KIND, RECORD, MOST_ROWS))
