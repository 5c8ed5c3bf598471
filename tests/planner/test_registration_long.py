"""A thousand jobs at once under GitHub's own limits, on virtual time."""

from dataclasses import dataclass, field

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import RegistrationRate
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.plan import Assign, CancelLaunchRequest, DeregisterRunner, Launch, Terminate
from tests.ledger.builders import GPU, START, World
from tests.planner.fleets import catalogue

JOBS, BOOT, BURST, RATE = 1000, 60.0, 30, 2.5


@dataclass
class Run:
    """What happened, in seconds since the start."""

    world: World
    calls: list[int] = field(default_factory=list)
    launched: list[float] = field(default_factory=list)
    assigned: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    others: list[object] = field(default_factory=list)

    def step(self, seconds: float) -> None:
        """Advance by `seconds`: requests are answered, machines boot, assigned machines start jobs."""
        world = self.world
        world.after(seconds)
        for call in list(world.state.open_launch_requests.values()):
            if call.state is LaunchRequestState.RECORDED:
                world.do(e.LaunchRequestSent, call.id)
                world.answer(call.id, *(f"i-{slot}" for slot in call.slots))
        for machine in list(world.fleet().machines_in(GPU, MachineState.LAUNCHED)):
            if world.now - machine.created_at >= BOOT:
                world.boot(machine.id)
                world.do(e.HealthChecksReported, machine.id, True, "ok")
        for machine in list(world.fleet().machines_in(GPU, MachineState.READY)):
            world.do(e.MachineSeen, machine.id)
        self.plan()

    def plan(self) -> None:
        at = self.world.now - START
        ready = {m: r.since for m, r in self.world.state.machines.items()}
        for intent in self.world.carry_out().intents:
            if isinstance(intent, Launch):
                self.calls.append(intent.count)
                self.launched.extend([at] * intent.count)
            elif isinstance(intent, Assign):
                self.assigned.append(at)
                self.waits.append(self.world.now - ready[intent.machine])
                self.start(intent.machine)
            else:
                self.others.append(intent)

    def start(self, machine: MachineId) -> None:
        """The machine fetches its assignment, and GitHub gives it the oldest job."""
        world = self.world
        name = world.machine(machine).work.runner
        assert name is not None
        world.do(e.RunnerRegistered, name, 1)
        world.do(e.ConfigurationSent, name)
        world.do(e.RunnerListening, name)
        (queue,) = world.state.queues.values()
        world.starts(queue.values()[0].id, name)


@pytest.mark.case(
    "1,500 registrations in 5 minutes for an organization",
    topic="GitHub's REST API",
    source="GitHub: Actions limits",
)
def test_a_thousand_jobs_register_within_githubs_limits() -> None:
    world = World(catalogue(registration=RegistrationRate(BURST, RATE)))
    world.queue(*range(1, JOBS + 1))
    run = Run(world)
    run.plan()
    while world.state.queues and world.now < START + 1000:
        run.step(1.0)
    assert len(run.assigned) == len(run.launched) == JOBS
    assert max(run.waits) <= 120.0
    assert len(run.calls) <= 12
    assert run.others == []
    # No machine is launched earlier than a boot and a minute before its registration.
    turns = [max(0.0, (n + 1 - BURST) / RATE) for n in range(JOBS)]
    assert all(at >= turn - BOOT - 61.0 for at, turn in zip(run.launched, turns, strict=True))
    assert all(at >= turn for at, turn in zip(run.assigned, turns, strict=True))
    assert run.assigned[-1] <= turns[-1] + BOOT + 60.0
    assert not any(
        isinstance(i, (Terminate, CancelLaunchRequest, DeregisterRunner)) for i in run.others
    )
