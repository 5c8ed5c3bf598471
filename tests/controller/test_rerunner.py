"""Jobs whose machines were interrupted: rerun once, as soon as GitHub allows it, also after crashes."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.github.reruns import Rerunner
from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RerunAnswer,
    RerunUnknownError,
    RetryLaterError,
)
from autoscaler.ledger.machines.reruns import ASK_AGAIN
from autoscaler.model.events import JobObserved, MachineNoticed
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.interruptions import NoticeKind, Rerun, RerunOutcome
from tests.controller.agents import launched, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST, catalogue

JOB = JobId(1)
ACCEPTED = RerunAnswer((JOB,), RerunOutcome.ACCEPTED)
NOT_YET = RerunAnswer((JOB,), None, "the run is in_progress")


@dataclass
class FakeReruns:
    """A GitHub that gives scripted answers, and keeps each request with what was stored at that moment."""

    world: World
    script: deque[RerunAnswer | GitHubError] = field(default_factory=deque)
    asked: list[tuple[str, int, int, tuple[JobId, ...]]] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    durable: list[int] = field(default_factory=list)

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        self.asked.append((repository, run_id, run_attempt, tuple(jobs)))
        self.asked_at.append(self.world.clock.now())
        self.durable.append(max(r.asked for r in self.world.store.of_kind(Rerun)))
        step = self.script.popleft()
        if isinstance(step, GitHubError):
            raise step
        return step


async def killed() -> tuple[World, Controller, FakeReruns, Rerunner]:
    """Return a world with a failed job whose spot machine was interrupted."""
    known = catalogue()
    skus = {name: replace(sku, rerun_interrupted=2) for name, sku in known.skus.items()}
    world = World(catalogue=replace(known, skus=skus))
    reruns = world.reruns = FakeReruns(world)
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    machine = controller.only_machine()
    assert machine.placement.provider_id is not None
    now = world.clock.now()
    notice = MachineNoticed(
        now, EAST, machine.placement.provider_id, NoticeKind.SPOT_INTERRUPTION, now
    )
    await controller.journal.record(notice)
    world.east.shut_down(machine.placement.provider_id)
    await controller.machine_lists.list_machines(EAST)
    await world.clock.sleep(600.0)
    job = controller.state.jobs[JOB]
    now = world.clock.now()
    failed = JobObserved(now, JOB, JobState.COMPLETED, job.repository, job.labels, job.queued_at)
    await controller.journal.record(
        replace(failed, run_id=7, conclusion="failure", completed_at=now)
    )
    await world.clock.sleep(ASK_AGAIN.first)
    return world, controller, reruns, controller.parts.rerunner


def outcome(world: World) -> RerunOutcome | None:
    """Return the outcome in the store."""
    (rerun,) = world.store.of_kind(Rerun)
    return rerun.outcome


async def ask_when_due(world: World, rerunner: Rerunner) -> None:
    """Request the due reruns, and wait until the next try."""
    await rerunner.ask_for_due()
    (rerun,) = world.store.of_kind(Rerun)
    if rerun.due is not None:
        await world.clock.sleep(rerun.due - world.clock.now())


@pytest.mark.case(
    "GitHub refuses to re-run a job until its run is complete",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@on_virtual_time
async def test_a_rerun_is_requested_until_the_run_is_complete_and_github_accepts() -> None:
    world, _, reruns, rerunner = await killed()
    reruns.script.extend([NOT_YET, OperatorError("403"), NOT_YET, ACCEPTED])
    for _ in range(5):
        await ask_when_due(world, rerunner)
    assert reruns.asked == [("acme/widgets", 7, 1, (JOB,))] * 4
    assert reruns.durable == [1, 2, 3, 4], "recorded first, then sent"
    gaps = [b - a for a, b in zip(reruns.asked_at, reruns.asked_at[1:], strict=False)]
    assert gaps == pytest.approx([ASK_AGAIN.first * 2**n for n in range(3)])
    assert outcome(world) is RerunOutcome.ACCEPTED
    assert ("rerun", "gpu", RerunOutcome.ACCEPTED) in world.telemetry.said


@on_virtual_time
async def test_a_refused_request_is_logged_with_its_run_and_githubs_answer() -> None:
    _, _, reruns, rerunner = await killed()
    reruns.script.append(OperatorError("403: Resource not accessible by integration"))
    with capture_logs() as logs:
        await rerunner.ask_for_due()
    (line,) = [one for one in logs if one["event"] == "rerun_failed"]
    assert (line["repository"], line["run"]) == ("acme/widgets", 7)
    assert line["error"] == "403: Resource not accessible by integration"


@on_virtual_time
async def test_no_rerun_is_requested_before_it_is_due() -> None:
    _, _, reruns, rerunner = await killed()
    reruns.script.append(NOT_YET)
    await rerunner.ask_for_due()
    await rerunner.ask_for_due()
    assert len(reruns.asked) == 1


@pytest.mark.case(
    "the answer to a re-run request is lost: it is not repeated",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@on_virtual_time
async def test_a_rerun_whose_answer_was_lost_happens_once() -> None:
    world, _, reruns, rerunner = await killed()
    superseded = RerunAnswer((JOB,), RerunOutcome.SUPERSEDED, "attempt 2")
    reruns.script.extend([RerunUnknownError("it broke", 30.0, (JOB,)), superseded])
    for _ in range(3):
        await ask_when_due(world, rerunner)
    assert len(reruns.asked) == 2
    assert outcome(world) is RerunOutcome.ACCEPTED


@pytest.mark.case(
    "the lost answer was for one of several jobs: the others are still re-run",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@on_virtual_time
async def test_beside_other_failed_jobs_each_killed_job_is_rerun_alone() -> None:
    """After a crash the store shows which of the jobs may have been rerun."""
    world, controller, reruns, rerunner = await killed()
    both = (JOB, JobId(2))
    controller.state.add(replace(controller.state.reruns[JOB], job=both[1]), stored=True)
    apart = RerunAnswer(both, None, "others failed too", apart=True)
    reruns.script.extend([apart, ACCEPTED])
    await rerunner.ask_for_due()
    assert [jobs for *_, jobs in reruns.asked] == [both, (JOB,)]
    found = {rerun.job: rerun for rerun in world.store.of_kind(Rerun)}
    assert found[JOB].outcome is RerunOutcome.ACCEPTED
    other = found[both[1]]
    assert (other.outcome, other.run_attempt, other.unanswered) == (None, 2, 0)


@pytest.mark.case(
    "a re-run request that was never sent does not count an attempt that another person started",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@pytest.mark.parametrize("error", [RetryLaterError("502", 30.0), OperatorError("403")])
@on_virtual_time
async def test_a_rerun_request_that_was_never_sent_does_not_take_over_another_attempt(
    error: GitHubError,
) -> None:
    world, _, reruns, rerunner = await killed()
    superseded = RerunAnswer((JOB,), RerunOutcome.SUPERSEDED, "attempt 2")
    reruns.script.extend([error, superseded])
    await ask_when_due(world, rerunner)
    assert world.store.of_kind(Rerun)[0].reason == str(error)
    for _ in range(2):
        await ask_when_due(world, rerunner)
    assert outcome(world) is RerunOutcome.SUPERSEDED


@pytest.mark.case(
    "GitHub refuses to re-run a job until its run is complete",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@on_virtual_time
async def test_due_reruns_survive_a_restart() -> None:
    world, controller, _, _ = await killed()
    await controller.kill()
    reruns = world.reruns = FakeReruns(world, deque([ACCEPTED]))
    again = Controller(world)
    await again.resume()
    await again.parts.rerunner.ask_for_due()
    assert reruns.asked == [("acme/widgets", 7, 1, (JOB,))]
    assert outcome(world) is RerunOutcome.ACCEPTED


@on_virtual_time
async def test_jobs_rerun_together_are_not_rerun_alone_too() -> None:
    _, controller, reruns, rerunner = await killed()
    both = (JOB, JobId(2))
    controller.state.add(replace(controller.state.reruns[JOB], job=both[1]), stored=True)
    reruns.script.append(RerunAnswer(both, RerunOutcome.ACCEPTED))
    await rerunner.ask_for_due()
    assert [jobs for *_, jobs in reruns.asked] == [both]
