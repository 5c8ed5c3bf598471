"""Rule 1: deliveries that come twice, late or out of order leave the same ledger."""

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.job import JobState
from tests.ledger.builders import GPU_CLASS, World
from tests.planner.fleets import catalogue, sku

FACTS = (
    (JobState.WAITING, {"labels": ("gpu",)}),
    (JobState.QUEUED, {"labels": ("gpu",), "queued_at": 900.0}),
    (
        JobState.IN_PROGRESS,
        {"labels": ("gpu",), "runner_name": RunnerName("r-1"), "started_at": 950.0},
    ),
    (
        JobState.COMPLETED,
        {
            "labels": (),
            "runner_name": RunnerName("r-1"),
            "started_at": 950.0,
            "completed_at": 990.0,
            "conclusion": "success",
        },
    ),
)
KEPT = ("state", "labels", "demand", "runner_name", "started_at", "completed_at", "conclusion")


def facts_of(last: int) -> st.SearchStrategy[list[int]]:
    """Draw every fact up to `last` at least once, some twice, in any order."""
    return st.lists(st.integers(0, last), max_size=4).flatmap(
        lambda again: st.permutations([*range(last + 1), *again])
    )


def reported(order: list[int]) -> World:
    world = World()
    for number in order:
        world.now += 1
        state, fields = FACTS[number]
        world.observe(1, state, **({"queued_at": 900.0} | fields))
    return world


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([2, 3]).flatmap(facts_of))
def test_events_of_a_started_job_give_the_same_record_in_any_order(order: list[int]) -> None:
    world, straight = reported(order), reported(sorted(set(order)))
    for name in KEPT:
        assert getattr(world.job(1), name) == getattr(straight.job(1), name), name
    assert not world.job(1).disputed
    assert (world.state.queues, world.state.reads) == ({}, {})
    assert world.state.in_progress == straight.state.in_progress


@settings(max_examples=30, deadline=None)
@given(facts_of(1), st.sampled_from([JobState.WAITING, JobState.QUEUED]))
def test_githubs_answer_decides_whether_a_disputed_job_is_queued_or_waiting(
    order: list[int], truth: JobState
) -> None:
    world = reported(order)
    assert world.job(1).disputed
    assert world.state.queues == {}
    assert list(world.state.reads) == [1]
    world.observe(1, truth, read=True)
    assert (world.job(1).state, world.job(1).disputed) == (truth, False)
    assert bool(world.state.queues) is (truth is JobState.QUEUED)


@settings(max_examples=30, deadline=None)
@given(st.permutations([1, 2, 3, 4, 5]), st.integers(1, 3))
def test_the_order_of_a_queue_does_not_depend_on_the_order_of_events(
    order: list[int], copies: int
) -> None:
    world = World()
    for job in order * copies:
        world.observe(job, JobState.QUEUED, queued_at=900.0 - job % 3)
    (queue,) = world.state.queues.values()
    assert [job.id for job in queue.values()] == [2, 5, 1, 4, 3]


def test_the_labels_of_the_first_event_stay() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    world.queue(1)
    world.starts(1, "r", labels=("cpu",))
    assert world.job(1).labels == ("gpu",)
    assert world.job(1).demand == GPU_CLASS


def test_a_job_on_hold_that_was_read_is_released_like_any_other() -> None:
    world = World()
    world.queue(1)
    world.ready("c")
    world.ready("d")
    for wait in (180.0, 60.0):
        world.after(wait)
        world.observe(1, JobState.QUEUED, read=True)
    third = world.ready("e")
    assert world.fleet().reads == {}
    world.queue(2)
    world.starts(2, third)
    assert world.job(1).passed_over == ()
