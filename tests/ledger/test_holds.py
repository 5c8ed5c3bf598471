"""Jobs on hold: runners passed over, jobs marked, retried by probes, released."""

from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.ledger.job_holds import CHECKED_AT_ONCE
from autoscaler.model import events as e
from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import PASSED_OVER_AFTER, RunnerState
from autoscaler.model.machines.machine import ExitReason, MachineState
from autoscaler.model.plan import Launch, ReadJob
from tests.ledger.builders import GPU_CLASS, START, World, idle
from tests.planner.fleets import catalogue, sku

DAY = 86_400.0


def leaves_unasked(world: World, name: str, sku: str = "gpu") -> str:
    """A machine fetches its assignment, gets no known job, and exits after two minutes."""
    runner = world.ready(name, sku)
    world.now += 120
    world.do(e.MachineExited, world.runner(runner).machine, "no job came")
    return runner


def leaves_idle(world: World, name: str, sku: str = "gpu") -> str:
    """Like `leaves_unasked`; then a read at GitHub shows the job as queued."""
    runner = leaves_unasked(world, name, sku)
    for job in [job for job in world.state.jobs.values() if job.disputed]:
        world.observe(job.id, JobState.QUEUED, job.labels, read=True)
    return runner


def serves_the_repository(world: World, job: int = 99, **fields: Any) -> None:
    """GitHub gives a job of the repository to a runner of the group: the group admits the repository."""
    runner = world.ready(f"served{job}")
    world.observe(job, JobState.IN_PROGRESS, runner_name=runner, **fields)


def held_jobs(world: World) -> list[int]:
    return [job for jobs in world.state.on_hold.values() for job in jobs]


@pytest.mark.case(
    "a listener that exits without a job is not a failure",
    topic="Runner and listener",
    source="actions/runner#4726",
)
def test_a_runner_that_leaves_idle_was_passed_over() -> None:
    world = World()
    world.queue(1)
    runner = leaves_idle(world, "a")
    assert world.job(1).passed_over == (runner,)
    assert world.job(1).probe_at is None
    assert held_jobs(world) == []


@pytest.mark.case(
    "GitHub never starts a queued job (a concurrency group, a fault at GitHub): it stops being "
    "demand",
    topic="GitHub's events",
    source="GitHub: run statuses; GitHub: concurrency",
)
def test_a_job_passed_over_by_two_different_runners_is_on_hold() -> None:
    world = World()
    world.queue(1)
    first, second = leaves_idle(world, "a"), leaves_idle(world, "b")
    assert world.job(1).passed_over == (first, second)
    assert world.job(1).probe_at == START + 240.0 + 600.0
    assert held_jobs(world) == [1]
    assert world.state.queues == {}


def test_the_controller_reads_the_job_that_each_leaving_runner_passed_over() -> None:
    world = World()
    world.queue(1)
    for number, name in enumerate("ab"):
        runner = leaves_unasked(world, name)
        assert world.job(1).passed_over[number:] == (runner,)
        assert [intent.job for intent in world.intents(ReadJob)] == [1]
        assert (world.intents(Launch), held_jobs(world)) == ([], [])
        world.observe(1, JobState.QUEUED, read=True)
        assert world.intents(ReadJob) == []
        assert len(world.intents(Launch)) == 1 - number, "the second mark holds it back"
    assert held_jobs(world) == [1]
    assert len(world.job(1).passed_over) == 2


def test_an_uncertain_job_is_read_every_minute_until_github_answers() -> None:
    world = World()
    world.queue(1)
    leaves_unasked(world, "a")
    for _ in range(3):
        world.carry_out()
        assert world.intents(ReadJob) == []
        world.after(60)
        assert [intent.job for intent in world.intents(ReadJob)] == [1]
    world.after(DAY)
    assert world.job(1).conclusion == "stale"
    assert (world.intents(ReadJob), world.intents(Launch)) == ([], [])


def test_reading_a_job_at_github_does_not_extend_its_expiry() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    assert world.job(1).expires_at == START + DAY


def two_idle(world: World) -> None:
    """Two runners idle for three minutes each. After the first, GitHub shows the job as queued."""
    world.ready("a")
    world.ready("b")
    world.after(180)
    world.observe(1, JobState.QUEUED, read=True)
    world.after(60)


def test_a_runner_counts_once_as_passing_over_a_job() -> None:
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.after(180)
    assert world.job(1).passed_over == (runner,)
    assert world.runner(runner).passed_over
    world.do(e.MachineExited, world.runner(runner).machine, "left")
    assert world.job(1).passed_over == (runner,)


def test_a_runner_that_idles_for_three_minutes_passed_over_the_waiting_job() -> None:
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.after(179.9)
    assert idle(world, runner)
    assert world.state.idle_runners == {GPU_CLASS: 1}
    world.after(0.1)
    assert not idle(world, runner)
    assert world.state.idle_runners == {}
    assert world.job(1).passed_over == (runner,)


def test_a_runner_that_idles_without_a_fitting_job_is_checked_again_later() -> None:
    world = World()
    runner = world.ready("a")
    world.after(180)
    assert idle(world, runner)
    assert world.runner(runner).retry_at == START + 240.0


@pytest.mark.case(
    "GitHub gives a job to another runner if the first one does not pick it up in 60 seconds",
    topic="GitHub's events",
    source="actions/scaleset",
)
@pytest.mark.parametrize(("waited", "marked"), [(59.9, False), (60.0, True)])
def test_a_leaving_runner_passes_over_a_job_only_if_the_job_waited_a_minute(
    waited: float, marked: bool
) -> None:
    world = World()
    runner = world.ready("a")
    world.now += 100
    world.queue(1)
    world.now += waited
    world.do(e.MachineExited, world.runner(runner).machine, "no job came")
    assert world.job(1).passed_over == ((runner,) if marked else ())


def leaves_early(world: World, name: str) -> None:
    """A machine fetches its assignment and reports its exit; GitHub has named no job for it."""
    runner = world.ready(name)
    world.now += 50
    world.do(e.MachineExited, world.runner(runner).machine, "the runner exited with status 0")


@pytest.mark.case(
    "a job is completed and its machine gone before the webhook of its start: no second machine "
    "is launched",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@pytest.mark.parametrize("leaves", [leaves_early, leaves_unasked])
def test_nothing_is_launched_for_a_job_whose_machine_reports_its_end_before_github(
    leaves: Callable[[World, str], object],
) -> None:
    world = World()
    world.queue(1)
    leaves(world, "a")
    assert [intent.job for intent in world.intents(ReadJob)] == [1]
    assert world.intents(Launch) == []
    world.completes(1, read=True, runner_name=RunnerName("ci-0badcafe-a0-1"))
    assert world.intents(ReadJob) == []
    assert world.intents(Launch) == []
    assert world.runner("ci-0badcafe-a0-1").job == 1


def test_a_job_that_github_still_shows_as_queued_is_launched_for_again() -> None:
    world = World()
    world.queue(1)
    leaves_early(world, "a")
    world.observe(1, JobState.QUEUED)
    assert world.intents(Launch) == [], "a webhook may have been sent long ago"
    world.observe(1, JobState.QUEUED, read=True)
    assert [launch.count for launch in world.intents(Launch)] == [1]
    assert world.intents(ReadJob) == []


def test_each_leaving_runner_makes_the_oldest_job_uncertain() -> None:
    world = World()
    world.queue(1)
    world.now += 1
    world.queue(2, 3)
    leaves_early(world, "a")
    assert [intent.job for intent in world.intents(ReadJob)] == [1]
    assert [launch.count for launch in world.intents(Launch)] == [2]
    leaves_early(world, "b")
    assert [intent.job for intent in world.intents(ReadJob)] == [1, 2]


def test_a_leaving_runner_whose_job_is_known_makes_no_job_uncertain() -> None:
    world = World()
    world.queue(1, 2)
    world.starts(1, world.ready("a"))
    world.now += 30
    world.do(e.MachineExited, world.runner("ci-0badcafe-a0-1").machine, "done")
    assert world.intents(ReadJob) == []
    assert [launch.count for launch in world.intents(Launch)] == [1]


def test_a_runner_passes_over_no_job_queued_after_it_left() -> None:
    world = World()
    runner = leaves_idle(world, "a")
    world.now += 1
    world.queue(1)
    world.now += 100
    world.do(e.RunnerClosed, runner, "terminated")
    assert world.job(1).passed_over == ()


def test_a_job_queued_while_the_runner_idled_is_passed_over_after_three_minutes() -> None:
    world = World()
    runner = world.ready("a")
    world.after(180)
    world.queue(1)
    for _ in range(2):
        world.after(60)
        assert world.job(1).passed_over == ()
    world.after(60)
    assert world.job(1).passed_over == (runner,)
    assert not idle(world, runner)


def test_a_busy_runner_was_not_passed_over() -> None:
    world = World()
    world.queue(1, 2)
    runner = world.ready("a")
    world.starts(1, runner)
    world.after(300)
    world.do(e.MachineExited, world.runner(runner).machine, "done")
    assert world.job(2).passed_over == ()


def test_a_runner_not_yet_listening_was_not_passed_over() -> None:
    world = World()
    world.queue(1)
    runner = world.register(world.make_ready(1, "a")[0])
    world.after(300)
    assert world.job(1).passed_over == ()
    assert world.runner(runner).state is RunnerState.REGISTERED
    world.do(e.RunnerClosed, runner, "refused")
    assert world.job(1).passed_over == ()


def test_an_idle_registration_that_is_closed_was_passed_over_too() -> None:
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.now += 60
    world.do(e.RunnerClosed, runner, "deleted")
    assert world.job(1).passed_over == (runner,)


def test_two_runners_pass_over_the_two_oldest_jobs_and_not_one_twice() -> None:
    world = World()
    serves_the_repository(world)
    world.queue(2)
    world.now += 1
    world.queue(1)
    first, second = leaves_idle(world, "a"), leaves_idle(world, "b")
    assert (world.job(2).passed_over, world.job(1).passed_over) == ((first,), (second,))
    third = leaves_idle(world, "c")
    assert world.job(2).passed_over == (first, third)
    assert held_jobs(world) == [2]


def test_a_runner_passes_over_only_jobs_that_it_could_run() -> None:
    world = World(catalogue(sku(labels=("extra",))))
    bigger = DemandClass("org:acme", "Default", ("extra", "gpu"), GPU_CLASS.skus)
    world.queue(1, labels=("gpu", "extra"))
    leaves_idle(world, "a")
    assert world.job(1).passed_over == ()
    world.queue(2)
    runner = world.assignment(world.make_ready(1, "b")[0], bigger)
    world.now += 120
    world.do(e.MachineExited, world.runner(runner).machine, "left")
    assert (world.job(1).passed_over, world.job(2).passed_over) == ((runner,), ())


@pytest.mark.parametrize(
    "other",
    [
        DemandClass("org:other", "Default", ("gpu",), GPU_CLASS.skus),
        DemandClass("org:acme", "other", ("gpu",), GPU_CLASS.skus),
    ],
)
def test_a_runner_of_another_scope_or_group_passes_over_no_job(other: DemandClass) -> None:
    world = World()
    world.queue(1)
    runner = world.assignment(world.make_ready(1, "a")[0], other)
    world.after(180)
    assert idle(world, runner)
    assert world.job(1).passed_over == ()


@pytest.mark.case(
    "GitHub never starts a queued job (a concurrency group, a fault at GitHub): it stops being "
    "demand",
    topic="GitHub's events",
    source="GitHub: run statuses; GitHub: concurrency",
)
def test_a_job_on_hold_gets_probes_at_doubling_intervals_up_to_an_hour() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    for number, interval in enumerate([600.0, 1200.0, 2400.0, 3600.0, 3600.0]):
        leaves_idle(world, f"b{number}")
        assert world.job(1).probe_at == world.now + interval
        world.after(interval - 1)
        assert held_jobs(world) == [1]
        world.after(1)
        assert held_jobs(world) == []
        assert world.job(1).probe_at is None
        assert len(world.state.queues[GPU_CLASS]) == 1


def test_a_started_job_ends_the_holds_of_all_jobs_of_its_class() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.queue(2)
    world.starts(2, world.ready("c"))
    job = world.job(1)
    assert (job.passed_over, job.probe_at, job.state) == ((), None, JobState.QUEUED)
    assert held_jobs(world) == []
    assert [queued.id for queued in world.state.queues[GPU_CLASS].values()] == [1]
    assert 1 not in world.state.reads


def test_a_started_job_ends_the_hold_of_a_disputed_job_of_its_class() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    leaves_unasked(world, "b")
    assert world.job(1).disputed
    world.starts(2, world.ready("x"))
    assert (world.job(1).passed_over, world.job(1).probe_at) == ((), None)
    assert list(world.state.reads) == [1]
    world.observe(1, JobState.QUEUED, read=True)
    assert [launch.count for launch in world.intents(Launch)] == [1]


def test_a_machine_terminated_without_a_report_may_have_run_the_job() -> None:
    world = World()
    world.queue(1)
    world.ready("a")
    world.after(30.0)
    world.lists(world.listed("a0", terminated=True))
    assert [intent.job for intent in world.intents(ReadJob)] == [1]
    assert world.intents(Launch) == []


def test_a_started_job_of_another_class_ends_no_hold() -> None:
    world = World(catalogue(sku(labels=("extra",))))
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.starts(2, "another", ("extra",))
    world.starts(3, "another", ("not-ours",))
    assert held_jobs(world) == [1]


def test_a_job_on_hold_that_starts_or_completes_is_released() -> None:
    for state in (JobState.IN_PROGRESS, JobState.COMPLETED):
        world = World()
        world.queue(1)
        leaves_idle(world, "a")
        leaves_idle(world, "b")
        world.observe(1, state)
        assert (held_jobs(world), world.state.reads) == ([], {})


def test_githubs_answer_about_an_uncertain_job_puts_it_on_hold() -> None:
    world = World()
    world.queue(1)
    two_idle(world)
    assert (list(world.state.reads), held_jobs(world)) == ([1], [])
    world.observe(1, JobState.QUEUED, read=True)
    assert world.state.reads == {}
    assert held_jobs(world) == [1]


def test_webhooks_do_not_replace_the_read_of_an_uncertain_job() -> None:
    world = World()
    world.queue(1)
    two_idle(world)
    world.queue(1)
    assert list(world.state.reads) == [1]
    assert (held_jobs(world), world.state.queues) == ([], {})


def test_a_repeated_in_progress_event_ends_no_further_hold() -> None:
    world = World()
    world.starts(9, "another")
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.starts(9, "another")
    assert held_jobs(world) == [1]


def test_a_runner_that_gets_a_job_late_is_no_longer_passed_over() -> None:
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.after(180)
    assert world.runner(runner).passed_over
    world.starts(1, runner)
    assert not world.runner(runner).passed_over
    assert world.runner(runner).state is RunnerState.BUSY


def test_the_history_shows_which_runners_passed_over_a_job() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.after(600)
    leaves_idle(world, "d")
    world.starts(2, world.ready("x"))
    names = [f"ci-0badcafe-{m}0-1" for m in "abd"]  # codespell:ignore abd
    asked = [("disputed", f"{name} did not get it, or runs it") for name in names]
    rows = [(r.event, r.detail) for r in world.ledger.take_changes().history if r.kind == "job"]
    assert rows[1:-1] == [
        ("passed_over", f"by {names[0]}"),
        asked[0],
        ("passed_over", f"by {names[1]}"),
        ("on_hold", f"passed over by {names[0]}, {names[1]}"),
        asked[1],
        ("probe", "passed over by 2 runners"),
        ("passed_over", f"by {names[2]}"),
        ("on_hold", f"passed over by {names[1]}, {names[2]}"),
        asked[2],
        ("in_progress", "webhook"),
    ]
    assert world.machine("a0").state is MachineState.EXITED


def cannot_connect(world: World, name: str) -> str:
    """A machine whose runner cannot connect to GitHub: its registration is deleted, and it reports why."""
    runner = leaves_after_a_release(world, name)
    said = "no job came: The SSL connection could not be established"
    world.do(e.MachineExited, world.runner(runner).machine, said, ExitReason.NOT_CONNECTED)
    return runner


def leaves_after_a_release(world: World, name: str) -> str:
    runner = world.ready(name)
    world.now += 120
    world.do(e.RunnerClosed, runner, "released")
    for job in [job for job in world.state.jobs.values() if job.disputed]:
        world.observe(job.id, JobState.QUEUED, job.labels, read=True)
    return runner


@pytest.mark.case(
    "runners that cannot connect to GitHub hold no job back, so jobs do not wait once they can "
    "connect",
    topic="Runner and listener",
    source="actions/runner: automatic proxy and certificate checks",
)
def test_a_runner_that_could_not_connect_passes_over_no_job() -> None:
    """If a proxy replaces GitHub's certificate, no runner connects, so GitHub passes over none."""
    world = World()
    world.queue(1)
    for number in range(12):
        cannot_connect(world, f"r{number}")
    assert world.job(1).passed_over == ()
    assert held_jobs(world) == []
    assert list(world.state.queues) == [GPU_CLASS]


def test_a_report_of_a_failed_connection_removes_only_the_mark_of_its_runner() -> None:
    world = World()
    world.queue(1)
    first = leaves_after_a_release(world, "a")
    second = leaves_after_a_release(world, "b")
    assert held_jobs(world) == [1]
    machine = world.runner(second).machine
    world.do(e.MachineExited, machine, "no job came", ExitReason.NOT_CONNECTED)
    assert world.job(1).passed_over == (first,)
    assert held_jobs(world) == []
    assert world.job(1).probe_at is None


def test_a_passed_over_mark_is_removed_while_its_job_is_read() -> None:
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.now += 120
    world.do(e.RunnerClosed, runner, "released")
    assert world.job(1).disputed
    world.do(e.MachineExited, world.runner(runner).machine, "no", ExitReason.NOT_CONNECTED)
    assert world.job(1).passed_over == ()
    assert world.job(1).disputed, "GitHub's word of the job may still be on its way"


def test_a_runner_with_a_job_cannot_report_a_failed_connection() -> None:
    world = World()
    world.queue(1, 2)
    runner = leaves_after_a_release(world, "a")
    marked = world.job(1)
    world.observe(2, JobState.IN_PROGRESS, runner_name=runner)
    assert world.runner(runner).job == 2
    world.observe(1, JobState.QUEUED, read=True)
    before = marked.passed_over
    world.do(e.MachineExited, world.runner(runner).machine, "no", ExitReason.NOT_CONNECTED)
    assert world.job(1).passed_over == before


def test_the_number_of_idle_runners_checked_at_once_is_bounded() -> None:
    """Runners that were registered together have their idle check at the same moment."""
    world = World()
    serves_the_repository(world)
    world.queue(*range(1, 2 * CHECKED_AT_ONCE + 2))
    names = [world.assignment(machine) for machine in world.make_ready(2 * CHECKED_AT_ONCE + 1)]
    seen = []
    world.now += PASSED_OVER_AFTER + 1.0
    for _ in range(3):
        world.after(0.0)
        seen.append(sum(world.runner(name).passed_over for name in names))
    assert seen == [CHECKED_AT_ONCE, 2 * CHECKED_AT_ONCE, len(names)]
