"""Notices from a queue to the ledger: stored before they are deleted, and the effect of each kind."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.machines.notices import MOST_CHANGES, PAUSES, WAIT, NoticeReader
from autoscaler.controller.ports.capabilities import Message, Notice
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.store import StoreError
from autoscaler.ledger.machines.lists import ABSENCE_CONFIRMED_AFTER
from autoscaler.model.events import ListedMachine, MachinesListed
from autoscaler.model.identifiers import ProviderMachineId, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import MachineState, TerminationReason
from tests.controller.agents import Agent, launched
from tests.controller.controllers import Controller, World
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

SPOT = NoticeKind.SPOT_INTERRUPTION
STATE = NoticeKind.STATE_CHANGE


@dataclass
class FakeQueue:
    """A queue that returns each message once. `script` has outcomes to use instead.

    `answers_after` is how long `shown` takes (seconds).
    """

    world: World
    store: FakeStore
    waiting: dict[str, Message] = field(default_factory=dict)
    script: deque[Exception] = field(default_factory=deque)
    shows: deque[Exception] = field(default_factory=deque)
    answers_after: Seconds = 0.0
    shown_at: list[float] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    looked_at: list[tuple[ProviderMachineId, ...]] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    commits_when_settled: list[int] = field(default_factory=list)

    def put(self, *messages: Message) -> None:
        self.waiting.update({message.receipt: message for message in messages})

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        self.asked_at.append(self.world.clock.now())
        if self.script:
            raise self.script.popleft()
        if not self.waiting:
            await asyncio.sleep(wait)
        received, self.waiting = self.waiting, {}
        return tuple(received.values())

    async def settle(self, receipts: Sequence[str]) -> None:
        self.commits_when_settled.append(len(self.store.commits))
        self.settled.extend(receipts)

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        self.looked_at.append(tuple(machines))
        self.shown_at.append(self.world.clock.now())
        if self.shows:
            raise self.shows.popleft()
        await asyncio.sleep(self.answers_after)
        pages = [page async for page in self.world.east.machines()]
        return tuple(one for page in pages for one in page if one.provider_id in machines)


def said(
    kind: NoticeKind,
    *machines: ProviderMachineId,
    at: float = 0.0,
    receipt: str = "r",
    message: str = "m",
) -> Message:
    return Message(message, receipt, Notice(kind, machines, at, "words"))


async def end(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def ready(world: World) -> tuple[Controller, Agent]:
    """Return a controller with a ready machine and a waiting job, before the next turn of the loop."""
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    return controller, agent


async def read_all(reader: NoticeReader) -> None:
    """Receive messages once, and read the machines that have changed."""
    await reader.read(EAST)
    await reader.read_machines(EAST)


def attend(controller: Controller) -> tuple[NoticeReader, FakeQueue]:
    world = controller.world
    queue = FakeQueue(world, world.store)
    return NoticeReader(controller.journal, {EAST: queue}, world.telemetry, world.clock), queue


@pytest.mark.case(
    "a spot interruption of a ready machine: it is replaced and gets no registration, and its "
    "offering is on hold",
    topic="EC2's machines",
    source="EC2: spot interruption notices",
)
@on_virtual_time
async def test_an_interruption_notice_is_stored_and_then_replaces_a_ready_machine() -> None:
    world = World()
    controller, _ = await ready(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    queue.put(said(SPOT, machine.placement.provider_id))
    before = len(world.store.commits)
    assert await reader.read(EAST) == 1
    assert queue.settled == ["r"]
    assert queue.commits_when_settled == [before + 1]
    assert world.store.machine(machine.id).interruption.kind is SPOT
    await controller.turn()
    terminated = controller.state.machines[machine.id].termination
    assert terminated.reason is TerminationReason.INTERRUPTED
    assert world.telemetry.said.count(("notice", EAST, SPOT)) == 1
    assert world.telemetry.said.count(("machine_interrupted", "gpu", SPOT)) == 1
    assert (
        world.telemetry.said.count(("machine_terminated", "gpu", TerminationReason.INTERRUPTED))
        == 1
    )


@pytest.mark.case(
    "a state change shows a machine's end at once; a forged one terminates nothing",
    topic="EC2's machines",
    source="EC2: EventBridge",
)
@on_virtual_time
async def test_after_a_state_change_notice_the_machine_is_described_and_recorded_as_terminated() -> (
    None
):
    world = World()
    controller, _ = await launched(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    world.east.shut_down(machine.placement.provider_id)
    stranger = ProviderMachineId("i-of-others")
    queue.put(said(STATE, machine.placement.provider_id, stranger))
    await read_all(reader)
    assert queue.looked_at == [(machine.placement.provider_id,)]
    assert controller.state.machines[machine.id].state is MachineState.TERMINATED
    assert world.store.machine(machine.id).state is MachineState.TERMINATED


@on_virtual_time
async def test_an_end_that_a_notice_shows_is_recorded_without_another_read() -> None:
    """A crash, or an API server that does not answer, cannot lose it any more."""
    world = World()
    controller, _ = await launched(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    world.east.shut_down(machine.placement.provider_id)
    ended = [one async for page in world.east.machines() for one in page]
    message = said(STATE, machine.placement.provider_id)
    assert message.notice is not None
    queue.put(replace(message, notice=replace(message.notice, ended=ended[0])))
    await reader.read(EAST)
    assert world.store.machine(machine.id).state is MachineState.TERMINATED
    assert queue.settled == ["r"]
    await reader.read_machines(EAST)
    assert queue.looked_at == []


@on_virtual_time
async def test_a_state_change_of_a_lost_machine_shows_why_it_was_lost() -> None:
    """Two lists may pass before a watch shows the end of a pod."""
    world = World()
    controller, agent = await ready(world)
    reader, queue = attend(controller)
    machine, instance = controller.only_machine(), agent.instance
    lost = MachinesListed(world.clock.now(), EAST, world.clock.now(), True, ())
    await controller.journal.record(lost)
    later = world.clock.now() + ABSENCE_CONFIRMED_AFTER
    await controller.journal.record(replace(lost, at=later, began_at=later))
    assert machine.state is MachineState.LOST
    instance.terminated, instance.failure = True, FailureClass.CAPACITY
    queue.put(said(STATE, instance.id))
    await read_all(reader)
    assert queue.looked_at == [(instance.id,)]
    assert machine.interruption.kind is SPOT


@pytest.mark.case(
    "a state change has no reason: the controller reads it while the machine goes down, so that "
    "its failure has a class",
    topic="EC2's machines",
    source="EC2: StateReason",
)
@on_virtual_time
async def test_after_a_state_change_notice_the_description_gives_the_failure_class() -> None:
    """The first notice says `shutting-down`, and the reason of the shutdown must not be lost."""
    world = World()
    controller, (agent,) = await launched(world)
    reader, queue = attend(controller)
    instance = agent.instance
    instance.leaving, instance.failure = True, FailureClass.QUOTA
    instance.reason = "Client.VolumeLimitExceeded: words"
    queue.put(said(STATE, instance.id))
    await read_all(reader)
    await controller.turn()
    (machine,) = (
        m for m in controller.state.machines.values() if m.launch_request == instance.call
    )
    assert (machine.state, machine.failure) == (MachineState.TERMINATING, FailureClass.QUOTA)
    assert (machine.reason, world.east.ended) == (instance.reason, [])
    instance.terminated = True
    queue.put(said(STATE, instance.id))
    await read_all(reader)
    assert (machine.state, machine.failure) == (MachineState.TERMINATED, FailureClass.QUOTA)
    assert world.telemetry.said.count(("launch_failures", "gpu", FailureClass.QUOTA)) == 1


@pytest.mark.case(
    "a state change shows a machine's end at once; a forged one terminates nothing",
    topic="EC2's machines",
    source="EC2: EventBridge",
)
@on_virtual_time
async def test_a_forged_state_change_ends_no_ready_machine() -> None:
    world = World()
    controller, agent = await ready(world)
    reader, queue = attend(controller)
    queue.put(said(STATE, agent.instance.id))
    await read_all(reader)
    await controller.turn()
    assert world.east.ended == []
    assert controller.only_machine().state is MachineState.ASSIGNED


@pytest.mark.case(
    "a state change shows a machine's end at once; a forged one terminates nothing",
    topic="EC2's machines",
    source="EC2: EventBridge",
)
@on_virtual_time
async def test_a_false_state_change_ends_no_assigned_machine() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.start_runner()
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    queue.put(said(STATE, machine.placement.provider_id))
    await read_all(reader)
    await controller.turn()
    assert machine.state is MachineState.ASSIGNED
    assert world.east.ended == []


@pytest.mark.case(
    "a message in the queue is unreadable, or arrives again and again",
    topic="EC2's machines",
    source="Karpenter pkg/controllers/interruption",
)
@on_virtual_time
async def test_a_malformed_message_is_counted_and_deleted_and_the_others_are_applied() -> None:
    world = World()
    controller, _ = await ready(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    poison = Message("m-1", "r-1", poison="no JSON", excerpt="{")
    queue.put(
        poison, Message("m-2", "r-2"), said(SPOT, machine.placement.provider_id, receipt="r-3")
    )
    with capture_logs() as logs:
        assert await reader.read(EAST) == 3
    (line,) = logs
    assert (line["event"], line["provider"]) == ("notice_discarded", EAST)
    assert (line["message"], line["reason"], line["excerpt"]) == ("m-1", "no JSON", "{")
    assert queue.settled == ["r-1", "r-2", "r-3"]
    kinds = [word[2] for word in world.telemetry.said if word[0] == "notice"]
    assert kinds == ["poison", "other", SPOT]
    assert machine.interruption.kind is SPOT


@pytest.mark.case(
    "a notice is lost between its queue and the store",
    topic="EC2's machines",
    source="SQS: at-least-once delivery",
)
@on_virtual_time
async def test_a_notice_that_could_not_be_checked_stays_in_the_queue() -> None:
    world = World()
    controller, _ = await launched(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    queue.put(said(STATE, machine.placement.provider_id))
    queue.shows.append(OutcomeUnknownError("no answer"))
    with pytest.raises(OutcomeUnknownError):
        await read_all(reader)
    assert queue.settled == []
    await reader.read_machines(EAST)
    assert queue.settled == ["r"]


@on_virtual_time
async def test_an_interruption_is_applied_although_describing_another_machine_fails() -> None:
    world = World()
    controller, _ = await ready(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    queue.put(said(STATE, machine.placement.provider_id, receipt="state"))
    spot = said(SPOT, machine.placement.provider_id, receipt="spot", message="other")
    queue.put(spot)
    await reader.read(EAST)
    assert machine.interruption.kind is SPOT
    assert queue.settled == ["spot"]


@on_virtual_time
async def test_an_interruption_is_recorded_while_the_provider_does_not_answer_about_a_machine() -> (
    None
):
    """A pod's notice is only in memory: cluster seed 102818 crashed while the reader did not receive."""
    world = World()
    controller, _ = await ready(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    queue.put(said(STATE, machine.placement.provider_id, receipt="state"))
    queue.answers_after = 60.0
    tasks = [asyncio.ensure_future(task()) for task in reader.tasks]
    await asyncio.sleep(1.0)
    queue.put(said(SPOT, machine.placement.provider_id, receipt="spot", message="other"))
    await asyncio.sleep(WAIT)
    assert (queue.looked_at, queue.settled) == ([(machine.placement.provider_id,)], ["spot"])
    assert machine.interruption.kind is SPOT
    await asyncio.sleep(60.0)
    assert queue.settled == ["spot", "state"]
    await end(tasks)


@pytest.mark.case(
    "a pod's end is shown by the watch, and the API server fails the read of the pod that follows",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@on_virtual_time
async def test_machines_that_could_not_be_read_are_read_one_by_one_with_growing_pauses() -> None:
    """One machine may fail the read of all (found by seed 812 with clusters), and the provider may throttle."""
    world = World()
    controller, agents = await launched(world, 3)
    reader, queue = attend(controller)
    ids = [agent.instance.id for agent in agents]
    for number, machine in enumerate(ids):
        queue.put(said(STATE, machine, receipt=f"r{number}", message=f"m{number}"))
    queue.shows.extend([OutcomeUnknownError("slow"), OutcomeUnknownError("429", retry_after=60.0)])
    began = world.clock.now()
    with capture_logs() as logs:
        tasks = [asyncio.ensure_future(task()) for task in reader.tasks]
        await asyncio.sleep(100.0)
    await end(tasks)
    lines = [one for one in logs if one["event"] == "noticed_machines_not_read"]
    assert [(one["provider"], one["error"]) for one in lines] == [(EAST, "slow"), (EAST, "429")]
    first, second, third, fourth = queue.looked_at
    assert set(first) == set(ids)
    assert (len(second), len(third)) == (1, 1)
    assert {*second, *third, *fourth} == set(ids)
    tried = [at - began for at in queue.shown_at]
    assert tried[:3] == [0.0, PAUSES.first, PAUSES.first + 60.0]
    assert tried[3] < PAUSES.first + 61.0
    assert set(queue.settled) == {"r0", "r1", "r2"}


@on_virtual_time
async def test_a_state_change_that_is_received_again_is_settled_with_its_newest_receipt() -> None:
    """SQS gives each reception a receipt handle of its own, and only the newest one surely deletes."""
    world = World()
    controller, _ = await launched(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    for receipt in ("first", "second"):
        queue.waiting.clear()
        queue.put(said(STATE, machine.placement.provider_id, receipt=receipt))
        await reader.read(EAST)
    await reader.read_machines(EAST)
    assert queue.settled == ["second"]


@on_virtual_time
async def test_only_the_last_state_changes_are_kept() -> None:
    world = World()
    controller, _ = await launched(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    for number in range(MOST_CHANGES + 1):
        queue.put(
            said(STATE, machine.placement.provider_id, receipt=f"{number}", message=f"{number}")
        )
    await reader.read(EAST)
    await reader.read_machines(EAST, MOST_CHANGES + 1)
    assert (queue.settled[0], len(queue.settled)) == ("1", MOST_CHANGES)


@pytest.mark.case(
    "a notice is lost between its queue and the store",
    topic="EC2's machines",
    source="SQS: at-least-once delivery",
)
@on_virtual_time
async def test_a_notice_that_is_not_stored_stays_in_the_queue() -> None:
    world = World()
    controller, _ = await ready(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    queue.put(said(SPOT, machine.placement.provider_id))
    world.store.failure = StoreError("disk full")
    with pytest.raises(StoreError):
        await read_all(reader)
    assert queue.settled == []


@pytest.mark.case(
    "the queue does not exist, or may not be read",
    topic="EC2's machines",
    source="Karpenter pkg/controllers/interruption",
)
@on_virtual_time
async def test_a_failing_notice_queue_is_read_with_backoff() -> None:
    world = World()
    controller = Controller(world)
    reader, queue = attend(controller)
    refused = ProviderError(FailureClass.CONFIGURATION, "AccessDenied", "words")
    queue.script.extend([refused] * 8)
    attend_queue, _ = reader.tasks
    task = asyncio.ensure_future(attend_queue())
    await asyncio.sleep(2000.0)
    task.cancel()
    gaps = [b - a for a, b in zip(queue.asked_at, queue.asked_at[1:], strict=False)]
    assert gaps[:3] == [PAUSES.first, 2 * PAUSES.first, 4 * PAUSES.first]
    # EC2 warns two minutes before it takes a spot instance.
    assert max(gaps) == PAUSES.longest < 120.0
    assert gaps[-1] == WAIT


@on_virtual_time
async def test_notices_are_read_again_when_the_provider_asked_for_it() -> None:
    world = World()
    reader, queue = attend(Controller(world))
    queue.script.append(OutcomeUnknownError("503", retry_after=30.0))
    attend_queue, _ = reader.tasks
    with capture_logs() as logs:
        task = asyncio.ensure_future(attend_queue())
        await asyncio.sleep(60.0)
    task.cancel()
    assert queue.asked_at[1] - queue.asked_at[0] == 30.0
    (line,) = [one for one in logs if one["event"] == "notices_not_read"]
    assert (line["provider"], line["error"]) == (EAST, "503")


@on_virtual_time
async def test_a_notices_text_enters_the_machines_history() -> None:
    world = World()
    controller, _ = await ready(world)
    reader, queue = attend(controller)
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    message = said(SPOT, machine.placement.provider_id)
    assert message.notice is not None
    queue.put(replace(message, notice=replace(message.notice, detail="to terminate")))
    await read_all(reader)
    rows = await world.store.history("machine", machine.id)
    assert [row.detail for row in rows if row.event == "interrupted"] == [
        "spot_interruption: to terminate"
    ]
