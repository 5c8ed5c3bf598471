"""Reads at GitHub: disputed jobs, and the runners of silent assigned machines."""

from dataclasses import replace

import pytest

from autoscaler.controller.github.single_reads import GitHubReader
from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegisteredRunner,
    RetryLaterError,
)
from autoscaler.model.events import JobObserved, RunnerClosed
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.simulator.world.schedule import Fault, FaultKind
from tests.controller.agents import Agent, launched, queue, say
from tests.controller.controllers import Controller, World, delivery, parse
from tests.controller.fakes_github import FOR_EVER, ScriptedGitHub
from tests.controller.virtual_time import on_virtual_time

QUARTER = 15 * 60.0


def answer(world: World, job: int, state: JobState) -> JobObserved:
    """Return GitHub's answer about a job."""
    said = delivery(0, job, state, world.clock.now())
    event = parse(said.body, said.received_at)
    assert event is not None
    return replace(event, read=True)


def hiding_runners() -> ScriptedGitHub:
    """Return a GitHub whose lists are empty, and that shows jobs as they were first."""
    return ScriptedGitHub((Fault(0.0, FaultKind.WRONG_ANSWERS, FOR_EVER),))


async def silent(world: World, *, named: bool) -> tuple[Controller, Agent]:
    """Return a machine whose runner listens or, with `named`, runs a job, and whose agent became silent."""
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    if named:
        await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
        world.github.show(answer(world, 1, JobState.IN_PROGRESS))
    else:
        # Another runner got its job, and it got no other.
        await say(controller, 1, JobState.COMPLETED)
        world.github.disconnect(assigned.runner)
    await controller.turn()
    return controller, agent


async def wait(controller: Controller, seconds: float) -> None:
    await controller.world.clock.sleep(seconds)
    await controller.turn()


@pytest.mark.parametrize("named", [True, False])
@on_virtual_time
async def test_two_reads_a_quarter_of_an_hour_apart_end_a_silent_machine(named: bool) -> None:
    world = World()
    controller, agent = await silent(world, named=named)
    world.github.show(answer(world, 1, JobState.COMPLETED))
    await wait(controller, QUARTER - 30.0)
    assert not {"read_job", "find_runner"} & set(world.github.asked)
    await wait(controller, 30.0)
    await wait(controller, QUARTER - 30.0)
    assert world.east.ended == [], "one read is no proof"
    await wait(controller, 30.0)
    await wait(controller, 1.0)
    assert world.east.ended == [(agent.instance.id,)]
    assert controller.only_machine().termination.reason is TerminationReason.SILENT_AND_FINISHED


@pytest.mark.parametrize(
    "what", ["in_progress", "not shown", "online", "busy", "forgotten", "over", "hidden", "no id"]
)
@on_virtual_time
async def test_a_silent_machine_that_may_run_a_job_is_kept(what: str) -> None:
    # Every list of runners is empty: only a read by id finds the runner.
    world = World(github=hiding_runners() if what in ("hidden", "no id") else ScriptedGitHub())
    controller, _ = await silent(world, named=what in ("in_progress", "not shown", "forgotten"))
    (registered,) = world.github.registrations
    if what in ("online", "hidden"):
        world.github.connect(registered)
    else:
        world.github.disconnect(registered)
    if what in ("busy", "hidden"):
        world.github.occupy(registered)
    if what == "no id":
        name = controller.only_machine().work.runner
        assert name is not None
        controller.state.runners[name].github_id = None
    if what == "not shown":
        # 404: the App may have lost sight of the repository while the job goes on.
        del world.github.actions.jobs[JobId(1)]
    if what == "over":
        # Its registration may exist, and GitHub refused to delete it.
        world.github.occupy(registered)
        name = controller.only_machine().work.runner
        assert name is not None
        controller.journal.note(RunnerClosed(world.clock.now(), name, "busy"))
    if what == "forgotten":
        # The job was abandoned, started late, and left memory.
        world.github.occupy(registered)
        controller.state.drop(controller.state.jobs[JobId(1)])
    for _ in range(20):
        await wait(controller, QUARTER / 2)
    assert controller.crashes == []
    assert world.east.ended == []
    assert controller.only_machine().state is MachineState.ASSIGNED
    assert {"read_job", "find_runner"} & set(world.github.asked)


@pytest.mark.case(
    "lists hide a busy runner, its run and its job, while its agent is silent: only a 404 for the"
    " runner's id proves its absence",
    topic="GitHub's REST API",
    source="GitHub: get a self-hosted runner",
)
@pytest.mark.parametrize(
    ("online", "busy", "gone", "ended"),
    [
        (True, False, False, False),
        (False, True, False, False),
        (False, False, False, False),
        (False, False, True, True),
    ],
    ids=["online", "busy", "contradicted", "404"],
)
@on_virtual_time
async def test_a_runner_in_no_list_is_absent_only_if_github_answers_404_for_its_id(
    online: bool, busy: bool, gone: bool, ended: bool
) -> None:
    """Several wrong answers of GitHub at once: no run and no runner is listed, and the job is `queued`."""

    world = World(github=hiding_runners())
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    world.github.show(answer(world, 1, JobState.QUEUED))
    if not online:
        world.github.disconnect(assigned.runner)
    if busy:
        world.github.occupy(assigned.runner)
    if gone:
        world.github.remove(assigned.runner)
    for _ in range(8):
        await wait(controller, QUARTER / 2)
    assert world.github.asked.count("read_runner") >= 2
    # Machines launched for the job meanwhile never attest, so the controller terminates them.
    assert any(agent.instance.id in call for call in world.east.ended) is ended


@pytest.mark.parametrize("error", [RetryLaterError("503", 1.0), OperatorError("401")])
@pytest.mark.parametrize("method", ["find_runner", "read_runner"])
@on_virtual_time
async def test_a_read_without_an_answer_proves_nothing(method: str, error: GitHubError) -> None:
    world = World()
    controller, _ = await silent(world, named=False)
    world.github.script(method, *[error] * 20)
    for _ in range(10):
        await wait(controller, QUARTER)
    assert world.east.ended == []
    assert controller.crashes == []


@on_virtual_time
async def test_a_report_of_the_machine_between_the_reads_restarts_them() -> None:
    world = World()
    controller, agent = await silent(world, named=False)
    await wait(controller, QUARTER)
    assert controller.only_machine().work.finished_reads == 1
    await controller.bootstrap.heartbeat(agent.machine, agent.nonce)
    await wait(controller, QUARTER)
    await wait(controller, QUARTER - 60.0)
    assert world.east.ended == []
    await wait(controller, 60.0)
    await wait(controller, 1.0)
    assert len(world.east.ended) == 1


@on_virtual_time
async def test_a_disputed_job_is_read_and_nothing_is_launched_for_it_meanwhile() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await queue(controller, 1, JobState.WAITING)
    world.github.script("read_job", RetryLaterError("503", 1.0))
    world.github.show(answer(world, 1, JobState.QUEUED))
    await controller.turn()
    assert controller.state.jobs[JobId(1)].disputed
    await controller.turn()
    assert world.github.asked.count("read_job") == 1
    assert world.east.prepared == []
    await wait(controller, 60.0)
    assert not controller.state.jobs[JobId(1)].disputed
    await controller.turn()
    assert len(world.east.running) == 1


@on_virtual_time
async def test_a_404_does_not_settle_a_disputed_job() -> None:
    """GitHub also answers 404 if the App lost a permission."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1, JobState.WAITING)
    await queue(controller, 1)
    await controller.turn()
    job = controller.state.jobs[JobId(1)]
    assert world.github.asked.count("read_job") == 1
    assert (job.disputed, job.conclusion) == (True, None)
    assert world.east.prepared == []


async def lingers(world: World, *, registered: bool, online: bool = False) -> Controller:
    """A machine whose job is completed at GitHub, and whose agent sends heartbeats for forty minutes more."""
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    await say(controller, 1, JobState.COMPLETED, assigned.runner)
    if not registered:
        world.github.remove(assigned.runner)
    elif not online:
        world.github.disconnect(assigned.runner)
    for _ in range(40):
        await wait(controller, 60.0)
        if world.east.ended:
            break
        await controller.bootstrap.heartbeat(agent.machine, agent.nonce)
    return controller


@pytest.mark.case(
    "a job stops its listener and worker with SIGSTOP: its machine is terminated half an hour "
    "after the job, although its agent reports",
    topic="Hostile input",
    source="signal(7)",
)
@on_virtual_time
async def test_a_job_that_stops_its_listener_and_worker_keeps_its_machine_half_an_hour() -> None:
    """The agent sees a worker process for ever, and sends a heartbeat each minute."""
    world = World()
    controller = await lingers(world, registered=False)
    assert len(world.east.ended) == 1
    machine = controller.only_machine()
    assert machine.termination.reason is TerminationReason.FINISHED
    runner = controller.state.runners[machine.work.runner or RunnerName("")]
    assert 1800.0 <= world.clock.now() - runner.since < 1900.0
    assert ("machine_terminated", "gpu", TerminationReason.FINISHED) in world.telemetry.said


@on_virtual_time
async def test_the_registration_is_read_while_the_completed_job_is_still_in_memory() -> None:
    """The ledger keeps a completed job in memory until then."""
    world = World()
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    await say(controller, 1, JobState.COMPLETED, assigned.runner)
    await controller.turn()
    world.github.remove(assigned.runner)
    world.github.asked.clear()
    await GitHubReader(controller.journal, world.github).read_runner(agent.machine)
    assert JobId(1) in controller.state.jobs
    assert world.github.asked == ["find_runner", "read_runner"]
    assert controller.only_machine().work.unregistered_at is not None


@pytest.mark.parametrize("online", [False, True])
@on_virtual_time
async def test_a_machine_with_a_registration_is_kept_while_it_sends_heartbeats(
    online: bool,
) -> None:
    world = World()
    await lingers(world, registered=True, online=online)
    assert world.east.ended == []
    assert world.github.asked.count("read_runner") >= 2


class TwoMinds(ScriptedGitHub):
    """A GitHub whose list shows a runner online while a read by id shows it offline."""

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        found = await super().find_runner(scope, name)
        return None if found is None else replace(found, online=True)


@on_virtual_time
async def test_a_runner_that_the_list_or_a_read_shows_online_is_not_finished() -> None:
    world = World(github=TwoMinds())
    controller, _ = await silent(world, named=False)
    for _ in range(8):
        await wait(controller, QUARTER / 2)
    assert "find_runner" in world.github.asked
    assert world.east.ended == []
    rows = await world.store.history("machine", controller.only_machine().id)
    detail = (
        "no job is known; listed: online=True, busy=False, read by its id: online=False, busy=False"
    )
    assert detail in [row.detail for row in rows]
