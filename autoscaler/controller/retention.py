"""How long rows stay in the store, and the task that deletes older ones.

Of a record that ended, the store keeps the row and its history for `ROWS_KEPT_FOR`, and the ledger keeps the
record in memory for `ledger.KEPT_FOR`. The history of faults stays for `FAULTS_KEPT_FOR`, and the usage of
machines for `USAGE_DAYS`.
`store/pruning.py` deletes the rows.
"""

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Store
from autoscaler.model.accounting import day_of
from autoscaler.model.identifiers import Seconds

ROWS_KEPT_FOR: Seconds = 4 * 86400.0
FAULTS_KEPT_FOR: Seconds = 30 * 86400.0
USAGE_DAYS = 93
"""How many days of usage stay, today included: three months."""
PRUNE_EVERY: Seconds = 3600.0


async def prune_repeatedly(store: Store, clock: Clock) -> None:
    """Delete old rows, now and every hour, until cancelled. Raises StoreError."""
    while True:
        now = clock.now()
        usage_before = day_of(now) - USAGE_DAYS + 1
        await store.prune(now - ROWS_KEPT_FOR, now - FAULTS_KEPT_FOR, usage_before)
        await clock.sleep(PRUNE_EVERY)
