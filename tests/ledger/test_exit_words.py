"""An exit report of a machine says nothing about its job: only GitHub knows how the job ended.

actions/runner's `run.sh` ends with 0 for failed jobs too, and a job with root can change the exit code.
"""

import pytest

from autoscaler.model import events as e
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.machine import MachineState
from tests.ledger.builders import World

SAID = ["the runner exited with status 0", "the runner exited with status 7", "job: success", ""]


@pytest.mark.case(
    "`run.sh` exits with 0 in any case: its status says nothing about the job",
    topic="Runner and listener",
    source="actions/runner run-helper.sh",
)
@pytest.mark.parametrize("said", SAID)
def test_an_exit_report_does_not_complete_the_job(said: str) -> None:
    world = World()
    world.queue(1, 2)
    one, other = world.ready("a"), world.ready("b")
    world.starts(1, one)
    world.starts(2, other)
    world.do(e.MachineExited, world.runner(one).machine, said)
    assert world.machine("a0").state is MachineState.EXITED
    assert world.runner(one).state is RunnerState.DONE
    assert (world.job(1).state, world.job(1).conclusion) == (JobState.IN_PROGRESS, None)
    assert world.machine("b0").state is MachineState.ASSIGNED
    world.completes(1, conclusion="failure")
    assert (world.job(1).state, world.job(1).conclusion) == (JobState.COMPLETED, "failure")


@pytest.mark.case(
    "a runner misses several messages, and GitHub cancels the job",
    topic="GitHub's events",
    source="actions/runner#4728",
    param="cancelled",
)
@pytest.mark.case(
    "`completed` alone does not prove that a machine is idle",
    topic="GitHub's events",
    source="actions/runner#4492",
)
@pytest.mark.parametrize("conclusion", ["success", "failure", "cancelled"])
def test_a_completed_job_does_not_terminate_its_machine_before_the_exit_report(
    conclusion: str,
) -> None:
    """GitHub says `completed` while hooks, uploads and the listener may still be at work."""
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.starts(1, runner)
    world.completes(1, conclusion=conclusion)
    world.now += 600.0
    assert world.machine("a0").state is MachineState.ASSIGNED
    assert world.plan().intents == ()
