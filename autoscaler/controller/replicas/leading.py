"""Keeps the lease of the replica that leads, and ends its controller once it cannot be sure of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.replicas import SharedStore
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds

RENEW_EVERY: Seconds = 3.0
"""How often (real time) a leader renews its lease. Its transactions renew it, too."""

RELEASE_WITHIN: Seconds = 1.0
"""How long requests in flight may take (real time) before a leader gives the lease up.

The next leader repeats the requests whose outcome it does not know.
"""

FOLLOW_AFTER: Seconds = 1.0
"""Pause (real time) before a replica that led opens the store again."""


def is_of_store(error: BaseException) -> bool:
    """Return whether an error, or each of a group, is a StoreError: it ends only the leadership."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(StoreError)[1] is None
    return isinstance(error, StoreError)


async def renew_repeatedly(store: SharedStore, pacing: Clock) -> None:
    """Renew the lease until cancelled. Raises: StoreError, such as if another replica took it."""
    while True:
        await store.renew()
        await pacing.sleep(RENEW_EVERY)


@asynccontextmanager
async def renewing(store: SharedStore, pacing: Clock) -> AsyncIterator[None]:
    """Renew the lease until the end of the context: a start with many records may take longer than a lease.

    Without the lease the start fails anyway, with its next transaction.
    """
    renewals = asyncio.get_running_loop().create_task(renew_repeatedly(store, pacing))
    renewals.add_done_callback(_retrieve_error)
    try:
        yield
    finally:
        renewals.cancel()
        await asyncio.wait({renewals})


def _retrieve_error(renewals: "asyncio.Task[None]") -> None:
    """Retrieve the error: each later transaction raises it again."""
    if not renewals.cancelled():
        renewals.exception()


async def end_with_the_lease(store: SharedStore, pacing: Clock) -> None:
    """Return never. Raises: StoreError once this process is not sure to lead any more."""
    while (left := store.leads_for()) > 0:
        await pacing.sleep(left)
    raise StoreError("the lease was not renewed in time: another replica may lead now")
