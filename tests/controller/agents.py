"""A machine's requests to the bootstrap service, one method for each step."""

from typing import Any

from autoscaler.controller.ports.bootstrap import Assigned, BootstrapRefusedError
from autoscaler.model.events import RunnersListed
from autoscaler.model.identifiers import JobId, MachineId, RunnerName, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.machine import ExitReason, MachineState
from tests.controller.controllers import Controller, World, delivery
from tests.controller.fakes_provider import Instance, proof_of
from tests.planner.fleets import EAST


class Agent:
    """The agent of one machine, with a nonce."""

    def __init__(self, controller: Controller, instance: Instance, nonce: str = "") -> None:
        self.controller = controller
        self.instance = instance
        self.nonce = nonce or f"SECRET-NONCE-{instance.id}"
        self.machine = MachineId("")

    async def attest(self, proof: bytes | None = None, **changes: Any) -> None:
        said: dict[str, Any] = {
            "provider": EAST,
            "nonce": self.nonce,
            "protocol": 1,
            "agent": "1.0",
        } | changes
        answer = await self.controller.bootstrap.attest(
            proof=proof or proof_of(self.instance), **said
        )
        self.machine = answer.machine

    async def health_checks(
        self, *, passed: bool = True, version: str = "2.336.0", detail: str = "disk: ok"
    ) -> None:
        await self.controller.bootstrap.health_checks(
            self.machine, self.nonce, passed, detail, version
        )

    async def make_ready(self) -> None:
        await self.attest()
        await self.health_checks()

    async def poll(self, wait: Seconds = 50.0) -> Assigned | None:
        return await self.controller.bootstrap.poll(self.machine, self.nonce, wait)

    async def take_assignment(self) -> Assigned:
        answer = await self.poll()
        assert isinstance(answer, Assigned)
        return answer

    async def acknowledge(self, runner: RunnerName) -> None:
        await self.controller.bootstrap.acknowledge(self.machine, self.nonce, runner)

    async def start_runner(self) -> Assigned:
        """Do all steps up to a listening runner that GitHub shows as online."""
        await self.make_ready()
        await self.controller.turn()
        assigned = await self.take_assignment()
        await self.acknowledge(assigned.runner)
        self.controller.world.github.connect(assigned.runner)
        return assigned

    async def exit(
        self, detail: str = "runner left", reason: ExitReason = ExitReason.EXITED
    ) -> None:
        await self.controller.bootstrap.exited(self.machine, self.nonce, detail, reason)


async def refusal(work: Any) -> tuple[int, str]:
    """Return the HTTP status and the error code with which a request is refused."""
    try:
        answer = await work
    except BootstrapRefusedError as error:
        return error.status, error.reason
    raise AssertionError(f"not refused: {answer}")


async def launched(world: World, jobs: int = 1) -> tuple[Controller, list[Agent]]:
    """Return a controller that launched a machine for each of so many queued jobs, and their agents."""
    controller = Controller(world)
    await controller.resume()
    for job in range(1, jobs + 1):
        await queue(controller, job)
    await controller.turn()
    assert len(controller.state.machines) == jobs
    assert {m.state for m in controller.state.machines.values()} == {MachineState.LAUNCHED}
    return controller, [Agent(controller, i) for i in world.east.running]


async def queue(controller: Controller, job: int, state: JobState = JobState.QUEUED) -> None:
    """Deliver a `queued` webhook for each job."""
    await say(controller, job, state)


async def say(
    controller: Controller,
    job: int,
    state: JobState,
    runner: RunnerName | None = None,
    labels: tuple[str, ...] = ("gpu",),
) -> None:
    """Deliver a webhook with a job's state and runner."""
    world = controller.world
    now = world.clock.now()
    known = controller.state.jobs.get(JobId(job))
    await controller.intake.accept(
        delivery(
            len(world.store.inbox) + 1,
            job,
            state,
            now,
            queued_at=known.queued_at if known is not None else now,
            labels=labels,
            runner=runner,
        )
    )


async def assigned_machine(world: World) -> tuple[Controller, Agent]:
    """Return a controller and the agent of a machine that has a registration and has not fetched it."""
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    await controller.turn()
    assert controller.only_machine().state is MachineState.ASSIGNED
    return controller, agent


def runner_of(controller: Controller) -> Runner:
    """Return the registration of the only machine."""
    name = controller.only_machine().work.runner
    assert name is not None
    return controller.state.runners[name]


def listed_at_github(controller: Controller, *at_work: RunnerName) -> None:
    """Apply GitHub's list of runners of every scope, which began now."""
    for scope in controller.state.catalogue.scopes:
        now = controller.journal.now
        controller.journal.note(RunnersListed(now, scope.key, now, at_work))
