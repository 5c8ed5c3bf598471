"""What a commit holds: the records as they were when it was asked for."""

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
from autoscaler.model.machines import Machine, TerminationReason
from tests.controller.agents import launched
from tests.controller.controllers import World
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import on_virtual_time
from tests.ledger import builders


@on_virtual_time
async def test_a_commit_holds_the_records_as_they_were_when_it_was_asked_for() -> None:
    """The store starts to write later, and a record must not run ahead of its row of history."""
    world = World()
    controller, (agent,) = await launched(world)
    await agent.attest()
    before = len(world.store.commits)
    journal = controller.journal
    journal.note(MachineReportedStage(journal.now, agent.machine, "driver"))
    commit = asyncio.create_task(journal.commit())
    await asyncio.sleep(0)  # asked for, and not begun to be written
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
    """Refuses a transaction once, and keeps what was handed over behind it."""

    refuses = False

    async def commit(self, *of: Any) -> None:
        refused, self.refuses = self.refuses, False
        if refused:
            raise StoreError("a Machine cannot be stored")
        await super().commit(*of)


@on_virtual_time
async def test_a_commit_fails_if_what_was_handed_over_before_it_was_not_kept() -> None:
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
    """The next process would find a gap: facts that build on others that are not there."""
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
async def test_a_write_that_fails_or_is_cancelled_is_reported_by_the_journal_alone() -> None:
    """asyncio would log an error that nothing took, and one in the callback that takes it."""
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


def test_the_ledger_of_serve_logs_a_transition_that_is_in_no_table_and_goes_on() -> None:
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
