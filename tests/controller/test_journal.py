"""The contents of a commit: the records as they were when it was requested."""

import asyncio
import gc
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.journal import log_refused_transition
from autoscaler.controller.ports.store import StoreError
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.events import ControllerStarted, MachineReportedStage, TerminationRequested
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import Machine, TerminationReason
from tests.controller.agents import launched
from tests.controller.controllers import World
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import on_virtual_time
from tests.ledger import builders


@on_virtual_time
async def test_a_commit_stores_the_records_as_they_were_when_it_was_requested() -> None:
    """The store writes later, and must not store a newer record than its history row."""
    world = World()
    controller, (agent,) = await launched(world)
    await agent.attest()
    before = len(world.store.commits)
    journal = controller.journal
    journal.note(MachineReportedStage(journal.now, agent.machine, "driver"))
    commit = asyncio.create_task(journal.commit())
    await asyncio.sleep(0)  # the commit is requested, and the store has not begun to write
    journal.note(MachineReportedStage(journal.now, agent.machine, "network"))
    await commit
    kept = world.store.commits[before]
    (record,) = kept.records
    assert [row.detail for row in kept.history] == ["driver"]
    assert isinstance(record, Machine)
    assert record.progress.stage == "driver"
    assert controller.only_machine().progress.stage == "network"
    await journal.commit()
    assert world.store.machine(agent.machine).progress.stage == "network"


class OneRefusal(FakeStore):
    """A store that refuses one transaction and stores the next ones."""

    refuses = False

    async def commit(self, *of: Any) -> None:
        refused, self.refuses = self.refuses, False
        if refused:
            raise StoreError("a Machine cannot be stored")
        await super().commit(*of)


@on_virtual_time
async def test_a_commit_fails_if_an_earlier_commit_failed() -> None:
    store = OneRefusal()
    controller, (agent,) = await launched(World(store=store))
    await agent.attest()
    journal = controller.journal
    store.refuses = True
    journal.note(MachineReportedStage(journal.now, agent.machine, "driver"))
    journal.start_commit()
    journal.note(MachineReportedStage(journal.now, agent.machine, "network"))
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be stored"):
            await journal.commit()
    with pytest.raises(StoreError, match="cannot be stored"):
        journal.start_commit()


@on_virtual_time
async def test_nothing_is_stored_after_a_refused_write() -> None:
    """Otherwise the next process would read records whose earlier changes are missing."""
    store = OneRefusal()
    controller, (agent,) = await launched(World(store=store))
    await agent.attest()
    journal = controller.journal
    kept = len(store.commits)
    store.refuses = True
    for stage in ("driver", "network", "disk"):
        journal.note(MachineReportedStage(journal.now, agent.machine, stage))
        journal.start_commit()
    with pytest.raises(StoreError, match="cannot be stored"):
        await journal.commit()
    assert store.commits[kept:] == []


@on_virtual_time
async def test_asyncio_logs_nothing_about_a_failed_or_cancelled_write() -> None:
    """asyncio logs an error that no code retrieved, and an error in a callback."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    for how in ("fails", "is cancelled"):
        store = OneRefusal()
        controller, (agent,) = await launched(World(store=store))
        await agent.attest()
        journal = controller.journal
        store.refuses = how == "fails"
        journal.note(MachineReportedStage(journal.now, agent.machine, "driver"))
        journal.start_commit()
        assert journal._latest is not None
        if how == "is cancelled":
            journal._latest.cancel()
        await asyncio.sleep(1.0)
        assert (journal.broken is not None) is (how == "fails")
        journal._latest = None
        gc.collect()
        await asyncio.sleep(0)
        assert unseen == [], how


def test_the_ledger_of_serve_logs_a_refused_transition_and_continues() -> None:
    world = builders.World()
    world.ledger = Ledger(world.catalogue, log_refused_transition)
    world.do(ControllerStarted, 0.0)
    world.launch(1)
    world.lists(world.listed("c0", terminated=True))
    with capture_logs() as lines:
        world.do(TerminationRequested, MachineId("c0"), TerminationReason.IDLE, "by mistake")
    assert lines == [
        {
            "event": "transition_refused",
            "log_level": "error",
            "kind": "machine",
            "record": "c0",
            "before": "terminated",
            "to": "terminating",
        }
    ]
    assert world.states() == {"c0": "terminated"}
