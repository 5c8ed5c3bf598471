"""At any moment, the first page, the status, the lists and the explanations of a fleet agree."""

import asyncio
import dataclasses

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from autoscaler.controller.composition import Controller
from autoscaler.model import events as e
from autoscaler.model.catalogue import Access
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.jobs.job import RunOrigin
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES
from autoscaler.planner.planner import plan
from autoscaler.simulator.world.controller.process import ProcessGoneError
from autoscaler.simulator.world.virtual_time import unowned
from autoscaler.simulator.world.world import SimulatedWorld
from autoscaler.views.faults.counts import Counts
from autoscaler.views.jobs.waits import Reasons
from autoscaler.views.overview import Overview, oldest_jobs
from autoscaler.views.status import status
from tests.chaos.cluster_fleets import SETTINGS
from tests.chaos.mix import schedule_of
from tests.chaos.trial import PATIENCE
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import queued
from tests.planner.test_rules import CATALOGUE, FleetSteps
from tests.views.agreement import disagreements

CPU = SkuName("cpu")
LABELS = (("gpu",), ("cpu",), ("shared",), ("other",))


class AskedFleet(FleetSteps):
    """Random steps of a fleet that is asked after each. Why jobs wait is as of an earlier plan."""

    catalogue = dataclasses.replace(
        CATALOGUE,
        skus={
            **CATALOGUE.skus,
            CPU: dataclasses.replace(CATALOGUE.skus[CPU], access=Access(forks=False)),
        },
    )

    def __init__(self) -> None:
        super().__init__()
        self.reasons: Reasons = {}

    @rule(labels=st.sampled_from(LABELS), run=st.integers(1, 4), age=st.sampled_from([0.0, 9000.0]))
    def job_of_a_run_is_queued(self, labels: tuple[str, ...], run: int, age: float) -> None:
        self.jobs += 1
        event = queued(self.jobs, self.now, *labels)
        self.ledger.apply(dataclasses.replace(event, run_id=run, queued_at=self.now - age))

    @rule(run=st.integers(1, 4), from_fork=st.booleans())
    def run_is_read(self, run: int, from_fork: bool) -> None:
        self.ledger.apply(e.RunRead(self.now, run, RunOrigin(from_fork, False, "main")))

    @rule(data=st.data())
    def github_is_asked(self, data: st.DataObject) -> None:
        for job in sorted(self.state.reads):
            self.ledger.apply(e.JobReadRequested(self.now, JobId(job)))
        for run in sorted(self.state.unread):
            self.ledger.apply(e.RunReadRequested(self.now, run))

    @rule()
    def fleet_is_planned(self) -> None:
        self.reasons = plan(self.ledger.fleet(self.now)).waiting

    @invariant()
    def all_answers_agree(self) -> None:
        fleet, state = self.ledger.fleet(self.now), self.state
        counts = Counts(
            running=state.in_progress,
            dollars_per_hour=0.0,
            unverified=state.unverified,
            not_terminating=state.not_terminating,
            objectives=DEFAULT_OBJECTIVES,
        )
        seen = status(fleet, self.reasons, counts)
        oldest, hour = oldest_jobs(fleet, self.reasons), seen.last_hour
        shown = Overview(seen, oldest, hour, hour, (), 0.0, DEFAULT_OBJECTIVES)
        assert list(disagreements(shown, fleet, self.reasons, state)) == []


TestAskedFleet = AskedFleet.TestCase
TestAskedFleet.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

ASKED_EVERY = 47.0
"""Seconds of a world between two questions: not a divisor of what the controller does each minute."""


def found_in(controller: Controller) -> list[str]:
    """Return what the answers of a controller say differently now."""
    queries = controller.queries
    state, now = controller.journal.ledger.state, queries.now()
    found = disagreements(queries.overview(), queries.fleet(), queries.waiting, state)
    return [f"at {now:.0f}: {one}" for one in found]


@pytest.mark.parametrize(("seed", "clusters"), [(4, False), (10, False), (1, True)])
def test_the_answers_agree_in_worlds_full_of_faults(seed: int, clusters: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        schedule = schedule_of(seed, clusters)
        world, found, asked = SimulatedWorld(SETTINGS[schedule.fleet], schedule), list[str](), 0

        async def ask() -> None:
            nonlocal asked
            while True:
                await asyncio.sleep(ASKED_EVERY)
                try:
                    found.extend(found_in(world.supervisor.current().ready))
                except ProcessGoneError:
                    continue
                asked += 1

        asking = unowned(ask())
        await world.run(PATIENCE)
        asking.cancel()
        assert found == []
        assert asked > 100

    scenario()
