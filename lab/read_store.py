"""Reads the store of stopped controllers."""

import asyncio
from contextlib import closing
from pathlib import Path

from autoscaler.store.copying import copy
from autoscaler.store.opening import is_shared, open_database, open_store
from lab.stored import Steps, Stored


async def read_store(url: str, file: Path) -> Stored:
    """Return what the store has. `file` is its SQLite file, or becomes a copy of one on a server.

    Raises StoreError.
    """
    if is_shared(url):
        await asyncio.to_thread(_copy, url, file)
    store = await open_store(f"sqlite:///{file}")
    try:
        saved = await store.load(0.0)
    finally:
        await store.close()
    machines = {machine.id: machine for machine in saved.machines}
    steps = {
        str(runner.name): Steps(
            machine.placement.provider_id or "",
            machine.progress.ready_at,
            runner.configuration_sent_at,
        )
        for runner in saved.runners
        if (machine := machines.get(runner.machine)) is not None
    }
    return Stored(steps, {str(one.id): len(one.slots) for one in saved.launch_requests})


def _copy(url: str, file: Path) -> None:
    with (
        closing(open_database(url)) as source,
        closing(open_database(f"sqlite:///{file}")) as target,
    ):
        copy(source, target)
