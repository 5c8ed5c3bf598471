"""How long rows stay in the store, and the task that deletes older ones.

Of a record that ended, the store keeps the row and its history for `ROWS_KEPT_FOR`, and the ledger keeps the
record in memory for `ledger.KEPT_FOR`. The history of faults stays for `FAULTS_KEPT_FOR`.
`store/pruning.py` deletes the rows.
"""

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Store
from autoscaler.model.identifiers import Seconds

ROWS_KEPT_FOR: Seconds = 4 * 86400.0
FAULTS_KEPT_FOR: Seconds = 30 * 86400.0
PRUNE_EVERY: Seconds = 3600.0


async def prune_repeatedly(store: Store, clock: Clock) -> None:
    """Delete old rows, now and every hour, until cancelled. Raises StoreError."""
    while True:
        now = clock.now()
        await store.prune(now - ROWS_KEPT_FOR, now - FAULTS_KEPT_FOR)
        await clock.sleep(PRUNE_EVERY)
