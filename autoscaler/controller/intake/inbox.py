"""Reads what other replicas stored: the leader applies their deliveries, too."""

from autoscaler.controller.intake.deliveries import Intake
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.replicas import SharedStore
from autoscaler.model.identifiers import Seconds

READ_EVERY: Seconds = 0.25
"""How often (real time) the leader looks for deliveries of other replicas. A job waits half of it longer."""

READ_AT_ONCE = 100
"""A body has at most 1 MiB, and usually 25 KB."""


async def read_repeatedly(store: SharedStore, intake: Intake, pacing: Clock) -> None:
    """Pass unapplied deliveries to the intake until cancelled. Raises: StoreError.

    They are found by their mark, and not by a number that grows: a database gives numbers at the insert, and
    shows rows at the commit, so a row may appear behind one that was read.
    """
    while True:
        if intake.resume(*await store.unapplied(READ_AT_ONCE)) < READ_AT_ONCE:
            await pacing.sleep(READ_EVERY)
