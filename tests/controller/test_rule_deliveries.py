"""Rule 1: deliveries that come twice, late, out of order, or are redelivered give the same ledger."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from autoscaler.controller.composition import Settings
from autoscaler.controller.ports.store import Delivery, DeliveryKey, StoreError
from autoscaler.controller.reconciler import Pace
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.server.completion import Completion
from tests.controller.agents import queue, say
from tests.controller.controllers import Controller, World, delivery, parse
from tests.controller.virtual_time import EPOCH, on_virtual_time

DETERMINED = settings(derandomize=True, deadline=None, max_examples=60, database=None)
Q, W, P, C = JobState.QUEUED, JobState.WAITING, JobState.IN_PROGRESS, JobState.COMPLETED

LIVES = ((Q,), (Q, P), (Q, C), (Q, P, C), (W, Q, P), (Q, W, Q, P, C))
"""Sequences of events of a job. Only a read decides between `queued` and `waiting`."""


def words(jobs: list[tuple[JobState, ...]]) -> list[Delivery]:
    """Return every delivery that GitHub makes for these jobs, in order and with its times."""
    made: list[Delivery] = []
    for number, states in enumerate(jobs, 1):
        queued_at = EPOCH - 100.0 + number
        for state in states:
            body = {
                "job": number,
                "state": state,
                "queued_at": queued_at,
                "run": number,
                "labels": ("gpu", "Linux"),
                "runner": f"runner-{number}" if state in (P, C) and P in states else None,
                "started_at": queued_at + 5.0 if state in (P, C) and P in states else None,
                "completed_at": queued_at + 9.0 if state is C else None,
            }
            made.append(
                Delivery(f"d-{len(made)}", "workflow_job", EPOCH, json.dumps(body).encode())
            )
    return made


def shown(controller: Controller) -> object:
    """Return the ledger without the times of arrival."""
    state = controller.state
    return (
        {j.id: replace(j, updated_at=0.0, read_at=None) for j in state.jobs.values()},
        {demand: [j.id for j in queued.values()] for demand, queued in state.queues.items()},
        {sku: count for sku, count in state.in_progress.items() if count},
    )


async def applied(deliveries: list[Delivery], restarts: frozenset[int] = frozenset()) -> Controller:
    """Return a controller that got these deliveries and was restarted after some of them."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    known: set[DeliveryKey] = set()
    for number, made in enumerate(deliveries):
        arrived = replace(made, received_at=world.clock.now())
        assert await controller.intake.accept(arrived) is (made.key not in known)
        assert made.key in world.store.inbox, "answered before it is durable"
        known.add(made.key)
        if number in restarts:
            await controller.kill()
            controller = Controller(world)
            await controller.resume()
        elif number % 3 == 0:
            await controller.intake.apply_waiting()
    await controller.intake.apply_waiting()
    assert world.store.applied == known
    assert await controller.intake.apply_waiting() == 0
    return controller


@pytest.mark.case(
    "deliveries arrive twice, late and out of order",
    topic="GitHub's events",
    source="GitHub: using webhooks",
)
@DETERMINED
@given(lives=st.lists(st.sampled_from(LIVES), min_size=1, max_size=4), data=st.data())
@on_virtual_time
async def test_repeated_and_reordered_deliveries_give_the_same_ledger(
    lives: list[tuple[JobState, ...]], data: st.DataObject
) -> None:
    made = words(lives)
    again = data.draw(st.lists(st.sampled_from(made), max_size=6))
    mixed = data.draw(st.permutations([*made, *again]))
    restarts = data.draw(st.frozensets(st.integers(0, len(mixed)), max_size=3))
    want, have = await applied(made), await applied(mixed, restarts)
    assert shown(have) == shown(want)
    started = [r for c in have.world.store.commits for r in c.history if r.event == P]
    assert len({row.record for row in started}) == len(started), "applied twice"


@pytest.mark.case(
    "a delivery is lost on its way: GitHub lists it as failed, and the controller asks for "
    "redelivery",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@DETERMINED
@given(
    lives=st.lists(
        st.sampled_from([life for life in LIVES if W not in life]), min_size=1, max_size=3
    ),
    data=st.data(),
)
@on_virtual_time
async def test_lost_deliveries_that_are_read_later_lead_to_the_same_ledger(
    lives: list[tuple[JobState, ...]], data: st.DataObject
) -> None:
    made = words(lives)
    first = [made[sum(map(len, lives[:n]))] for n in range(len(lives))]
    rest = [d for d in made if d not in first]
    lost = data.draw(st.lists(st.sampled_from(rest), unique=True)) if rest else []
    want = await applied(made)
    have = await applied([d for d in made if d not in lost])
    for missing in made:
        last = parse(missing.body, EPOCH)
        assert last is not None
        have.world.github.show(last)
    for job in tuple(have.state.jobs):
        await have.github_reader.read_job(job)
    assert shown(have) == shown(want)


@on_virtual_time
async def test_accept_returns_after_the_store_has_the_delivery() -> None:
    world = World()
    world.store.latency = 3.0
    controller = Controller(world)
    made = delivery(1, 1, Q, world.clock.now())
    accepting = asyncio.ensure_future(controller.intake.accept(made))
    await asyncio.sleep(2.9)
    assert not accepting.done()
    assert world.store.inbox == {}
    assert await accepting is True
    assert world.store.inbox == {made.key: made}


@on_virtual_time
async def test_a_delivery_is_stored_although_its_sender_disconnected() -> None:
    world = World()
    world.store.latency = 3.0
    controller = Controller(world)
    made = delivery(1, 1, Q, world.clock.now())
    hearing = asyncio.create_task(Completion().run(controller.intake.accept(made)))
    await asyncio.sleep(1.0)
    hearing.cancel()
    await asyncio.sleep(3.0)
    assert world.store.inbox == {made.key: made}
    assert await controller.intake.apply_waiting() == 1
    assert JobId(1) in controller.state.jobs


@on_virtual_time
async def test_a_repeated_delivery_is_applied_once() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    made = delivery(1, 1, Q, world.clock.now())
    answers = await asyncio.gather(*(controller.intake.accept(made) for _ in range(3)))
    assert sorted(map(bool, answers)) == [False, False, True]
    assert await controller.intake.apply_waiting() == 1
    assert await controller.intake.accept(made) is False
    assert await controller.intake.apply_waiting() == 0


@on_virtual_time
async def test_a_delivery_that_the_store_refuses_is_not_applied_and_ends_the_process() -> None:
    """A full disk may still have room for smaller writes, and no operator would notice the loss."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    running = asyncio.ensure_future(controller.loop.run())
    await asyncio.sleep(5.0)
    world.store.failure = StoreError("disk full")
    with pytest.raises(StoreError):
        await queue(controller, 1)
    world.store.failure = None
    with pytest.raises(StoreError, match="disk full"):
        await asyncio.wait_for(running, 60.0)
    assert controller.state.jobs == {}


@on_virtual_time
async def test_the_events_of_a_delivery_and_its_applied_mark_are_one_transaction() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await queue(controller, 2)
    await controller.intake.apply_waiting()
    (commit,) = (c for c in world.store.commits if c.applied)
    assert set(commit.applied) == set(world.store.inbox)
    assert {r.id for r in commit.records if isinstance(r, Job)} == {1, 2}


@pytest.mark.case(
    "one error drops a whole batch",
    topic="Complaints about other fleets",
    source="GAR#5105",
)
@on_virtual_time
async def test_an_unreadable_stored_body_does_not_block_later_deliveries() -> None:
    """An earlier release may have stored such a body, and every start would fail."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    bad = Delivery("bad", "workflow_job", EPOCH, b"\xff{")
    await world.store.accept(bad)
    with capture_logs() as logs:
        controller.intake.resume(bad)
    (line,) = logs
    assert (line["event"], line["delivery"]) == ("delivery_not_parsed", "bad")
    assert "can't decode byte 0xff" in line["error"]
    await queue(controller, 1)
    await controller.intake.apply_waiting()
    assert set(controller.state.jobs) == {JobId(1)}
    assert world.store.applied == set(world.store.inbox)


@on_virtual_time
async def test_an_unknown_action_is_marked_applied_without_an_effect() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    body = json.dumps({"job": 1, "state": "unheard-of"}).encode()
    unknown = Delivery("d", "workflow_job", EPOCH, body)
    assert await controller.intake.accept(unknown) is None
    assert world.store.inbox == {}
    await world.store.accept(unknown)
    controller.intake.resume(unknown)
    await controller.intake.apply_waiting()
    assert controller.state.jobs == {}
    assert [one.id for one in world.store.inbox.values()] == ["d"]
    assert world.store.applied == set(world.store.inbox)


@on_virtual_time
async def test_a_malformed_body_is_refused_at_once_and_not_stored() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    with pytest.raises(ValueError, match="codec"):
        controller.intake.accept(Delivery("bad", "workflow_job", EPOCH, b"\xff{"))
    assert world.store.inbox == {}


@on_virtual_time
async def test_late_events_of_a_pruned_job_do_not_make_it_demand_again() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    began = world.clock.now()
    await queue(controller, 1)
    await say(controller, 1, C)
    await controller.turn()
    await world.clock.sleep(KEPT_FOR + 60.0)
    await controller.turn()
    assert controller.state.jobs == {}
    for number, late in enumerate((Q, P, C), 100):
        await _late(controller, number, late, began)
    assert controller.state.jobs[JobId(1)].state is C
    assert controller.state.queues == {}
    await controller.turn()
    assert world.east.prepared == []


async def _late(controller: Controller, number: int, state: JobState, queued_at: Instant) -> None:
    now = controller.world.clock.now()
    await controller.intake.accept(delivery(number, 1, state, now, queued_at=queued_at))
    await controller.intake.apply_waiting()


@on_virtual_time
async def test_each_body_is_parsed_once() -> None:
    read = []

    class Counting(World):
        def settings(self, pace: Pace) -> Settings:
            return replace(super().settings(pace), parse=counted)

    def counted(body: bytes, at: Instant) -> JobObserved | None:
        read.append(body)
        return parse(body, at)

    world = Counting()
    controller = Controller(world)
    await controller.resume()
    made = delivery(1, 1, Q, world.clock.now())
    assert await controller.intake.accept(made) is True
    await controller.intake.apply_waiting()
    assert set(controller.state.jobs) == {JobId(1)}
    assert read == [made.body]


@pytest.mark.case(
    "deliveries of repositories outside every scope",
    topic="Hostile input",
    source="CWE-770",
)
@on_virtual_time
async def test_deliveries_outside_every_scope_are_dropped() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    now = world.clock.now()
    for state in (Q, P, C):
        elsewhere = delivery(1, 1, state, now, repository="strangers/widgets")
        assert await controller.intake.accept(elsewhere) is None
    await controller.intake.apply_waiting()
    assert world.store.inbox == {}
    assert controller.state.jobs == {}
    assert controller.intake.jobs_queued == 0
    assert not [record for commit in world.store.commits for record in commit.records]
    assert await controller.intake.accept(delivery(1, 1, Q, now)) is True


@on_virtual_time
async def test_a_known_job_whose_repository_left_the_scopes_is_still_completed() -> None:
    """The job is in memory, and must not stay `in_progress` there."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.intake.apply_waiting()
    ended = delivery(9, 1, C, world.clock.now(), repository="strangers/widgets")
    await controller.intake.accept(ended)
    await controller.intake.apply_waiting()
    assert controller.state.jobs[JobId(1)].state is C


@on_virtual_time
async def test_a_waiting_job_whose_queued_delivery_repeats_is_read_from_github() -> None:
    """For example after the approval of a deployment. A replay costs at most one read a minute."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    now = world.clock.now()
    first = delivery(1, 1, Q, now)
    await controller.intake.accept(first)
    await controller.intake.accept(delivery(2, 1, W, now))
    await controller.intake.apply_waiting()
    answer = parse(delivery(3, 1, W, now).body, now)
    assert answer is not None

    async def again(number: int) -> bool:
        """Return True if the job is read after the same body arrives with a new id."""
        repeated = Delivery(f"again-{number}", first.event, world.clock.now(), first.body)
        assert await controller.intake.accept(repeated) is False
        await controller.intake.apply_waiting()
        asked = controller.state.jobs[JobId(1)].disputed
        controller.journal.note(replace(answer, read=True, at=world.clock.now()))
        assert not controller.state.jobs[JobId(1)].disputed
        return asked

    controller.journal.note(replace(answer, read=True, at=now))
    await world.clock.sleep(59.0)
    assert not await again(1)
    await world.clock.sleep(61.0)
    assert await again(2)
    assert not await again(3)


@on_virtual_time
async def test_replayed_deliveries_write_nothing_while_the_job_is_disputed() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    now = world.clock.now()
    waits, queues = delivery(1, 1, W, now), delivery(2, 1, Q, now)
    await controller.intake.accept(waits)
    await controller.intake.apply_waiting()
    await controller.intake.accept(queues)
    await controller.intake.apply_waiting()
    answer = parse(waits.body, now)
    assert answer is not None
    controller.journal.note(replace(answer, read=True, at=now))
    await world.clock.sleep(61.0)
    applied = []
    for number in range(20):
        again = Delivery(f"again-{number}", queues.event, world.clock.now(), queues.body)
        assert await controller.intake.accept(again) is False
        applied.append(await controller.intake.apply_waiting())
    assert applied == [1, *[0] * 19]
