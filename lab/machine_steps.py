"""Reads from a controller's store when each runner's machine became ready and was assigned."""

from pathlib import Path

from autoscaler.store.opening import open_store
from lab.report import Steps


async def read_steps(file: Path) -> dict[str, Steps]:
    """Return the steps of each runner by its name. The controller must have exited.

    Raises StoreError.
    """
    store = await open_store(f"sqlite:///{file}")
    try:
        saved = await store.load(0.0)
    finally:
        await store.close()
    machines = {machine.id: machine for machine in saved.machines}
    return {
        runner.name: Steps(
            machine.placement.provider_id or "",
            machine.progress.ready_at,
            runner.configuration_sent_at,
        )
        for runner in saved.runners
        if (machine := machines.get(runner.machine)) is not None
    }
