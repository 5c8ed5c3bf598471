"""Keeps the lease of the replica that leads, and ends its controller once it cannot be sure of it."""

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.replicas import SharedStore
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds

RENEW_EVERY: Seconds = 3.0
"""How often (real time) a leader renews its lease. Its transactions renew it, too."""


async def renew_repeatedly(store: SharedStore, pacing: Clock) -> None:
    """Renew the lease until cancelled. Raises: StoreError, such as if another replica took it."""
    while True:
        await store.renew()
        await pacing.sleep(RENEW_EVERY)


async def end_with_the_lease(store: SharedStore, pacing: Clock) -> None:
    """Return never. Raises: StoreError once this process is not sure to lead any more."""
    while (left := store.leads_for()) > 0:
        await pacing.sleep(left)
    raise StoreError("the lease was not renewed in time: another replica may lead now")
