"""A simulated world in which a test asks why a job waits, and checks what is announced.

The world has one SKU, `arm`. Its controller is the product's, at the product's pace.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.controller.composition import Controller
from autoscaler.controller.reconciler import Pace
from autoscaler.model.catalogue import Catalogue, Limits
from autoscaler.model.identifiers import Instant, JobId, Seconds, SkuName
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.operators import OperatorName
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import WaitCode
from autoscaler.simulator.world.schedule import REPOSITORY, Fault, JobArrival, Schedule
from autoscaler.simulator.world.setting import Setting
from autoscaler.simulator.world.virtual_time import EPOCH, run, unowned
from autoscaler.simulator.world.world import SimulatedWorld
from autoscaler.views.jobs.explanation import Explanation
from autoscaler.views.jobs.waits import NextEvent
from tests.chaos.fleet import CATALOGUE, QUOTA, SETTING
from tests.chaos.trial import PATIENCE, final_violations

PROMPTLY: Seconds = Pace().tick + 0.2
"""The controller plans each second. A pass with its writes to the store, and a request, take a moment more."""

ARM = SkuName("arm")
OPERATOR = OperatorName("alice")


def one_sku(*, quota: int = QUOTA["west/C"], limits: Limits | None = None, **sku: Any) -> Catalogue:
    """Return a catalogue with the SKU `arm` alone, whose fields may be others.

    `quota` is that of its provider. `limits` are those of the fleet, by default the quota alone.
    """
    limits = replace(limits or Limits(), quotas={"west/C": quota})
    arm = replace(CATALOGUE.skus[ARM], **sku)
    return replace(CATALOGUE, skus={ARM: arm}, limits=limits)


def job(
    number: int = 1,
    at: Seconds = 5.0,
    works: Seconds = 60.0,
    labels: tuple[str, ...] = ("arm",),
    repository: str = REPOSITORY,
) -> JobArrival:
    """Return a job of the SKU."""
    return JobArrival(at, number, labels, works, repository=repository)


@dataclass
class Situation:
    """A world that a test looks into. Seconds count from the world's beginning."""

    world: SimulatedWorld

    @property
    def controller(self) -> Controller:
        """The controller that runs now."""
        return self.world.supervisor.current().ready

    async def at(self, second: Seconds) -> None:
        """Return at this second."""
        await asyncio.sleep(second - self.world.fault_schedule.time)

    def explained(self, number: int = 1) -> Explanation:
        """Return the answer to `autoscaler explain`, as the endpoint of operators gets it."""
        found = self.controller.queries.explain(JobId(number))
        assert found is not None
        return found

    def code(self, number: int = 1) -> Code | None:
        """Return why a job waits, or None if it does not."""
        view = self.explained(number).job
        assert view is not None
        return view.wait.code if view.wait is not None else None

    def announced(self, code: WaitCode, number: int = 1) -> NextEvent:
        """Return what is announced to a job that waits for this reason."""
        assert self.code(number) is code
        found = self.explained(number).next_event
        assert found is not None
        return found

    async def comes_true(self, event: NextEvent, happened: Callable[[], bool]) -> None:
        """Check that it has not happened before the announced time, and happens then."""
        assert event.at is not None, event
        second = event.at - EPOCH
        if second > self.world.fault_schedule.time:
            await self.at(second - 0.001)
            assert not happened(), f"before {second}"
        await self.at(second + PROMPTLY)
        assert happened(), f"not by {second + PROMPTLY}"

    @property
    def launches(self) -> list[Instant]:
        """When the launch requests so far were made."""
        return [one.created_at for one in self.world.store.of_kind(LaunchRequest)]

    @property
    def registrations(self) -> int:
        """How many runners GitHub has registered so far."""
        return len(self.world.actions.registrations)

    def started(self, number: int) -> Instant | None:
        """Return when GitHub started a job."""
        return self.world.actions.jobs[JobId(number)].started_at


def situation(
    *happenings: Fault | JobArrival, catalogue: Catalogue | None = None, lists: bool = False
) -> Callable[[Callable[[Situation], Awaitable[None]]], Callable[[], None]]:
    """Play a test's happenings, and the test beside them. Every job has to run, and nothing to be left.

    `lists`: the controller reads GitHub's lists, and has to remove registrations without a machine.
    """
    jobs = tuple(one for one in happenings if isinstance(one, JobArrival))
    faults = tuple(one for one in happenings if isinstance(one, Fault))

    def decorate(story: Callable[[Situation], Awaitable[None]]) -> Callable[[], None]:
        async def scenario() -> None:
            used = catalogue or one_sku()
            quota = used.limits.quotas
            setting: Setting = replace(
                SETTING, catalogue=used, quota=quota, pace=Pace(), strangers=0
            )
            world = SimulatedWorld(setting, Schedule(0, jobs, faults, lists))

            async def look() -> None:
                await story(Situation(world))

            looking = unowned(look())
            await world.run(PATIENCE)
            await looking
            assert (*world.invariants.violations, *final_violations(world)) == ()

        def test() -> None:
            run(scenario())

        test.__name__, test.__doc__ = story.__name__, story.__doc__
        return test

    return decorate
