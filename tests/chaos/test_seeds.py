"""Three hundred worlds full of faults, and nothing wrong with any in the end."""

from collections import Counter

import pytest

from autoscaler.model.identifiers import SkuName
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.witness import NO_HOLD_LEFT
from tests.chaos.campaign import campaign
from tests.chaos.fleet import CATALOGUE
from tests.chaos.mix import HABITS, LASTS, schedule_of
from tests.chaos.trial import Outcome

SEEDS = range(300)


def test_a_seed_has_fifty_jobs_four_skus_two_hours_and_five_kinds_of_fault() -> None:
    assert len(CATALOGUE.skus) == 4
    for seed in SEEDS:
        schedule = schedule_of(seed)
        assert len(schedule.jobs) >= 50
        assert len({fault.kind for fault in schedule.faults}) >= 5
        assert LASTS == 7200.0
        assert schedule.faults_end <= LASTS
        assert {job.labels[0] for job in schedule.jobs} >= {"gpu", "cpu"}


def test_long_after_the_faults_a_flood_and_another_repository_s_jobs_come() -> None:
    assert CATALOGUE.skus[SkuName("gpu")].share == 6
    for seed in SEEDS:
        late = [job for job in schedule_of(seed).jobs if job.at > LASTS]
        assert min(job.at for job in late) > LASTS + NO_HOLD_LEFT
        (flooded, flood), *_ = Counter((job.repository, job.labels) for job in late).most_common(1)
        assert {job.repository for job in late} > {flooded[0]}
        assert flood > 5


def test_every_kind_is_in_the_mix() -> None:
    drawn = {fault.kind for seed in SEEDS for fault in schedule_of(seed).faults}
    assert drawn == set(FaultKind)
    assert set(HABITS) == set(FaultKind)


@pytest.mark.timeout(1200)
def test_whatever_fails_nothing_is_lost_and_nothing_leaks() -> None:
    figures = campaign(SEEDS)
    assert [(outcome.seed, outcome.violations) for outcome in figures.bad] == []
    assert figures.seeds == len(SEEDS)
    assert set(figures.seeds_with) == set(FaultKind)


def test_after_ctrl_c_the_figures_are_those_of_the_seeds_played() -> None:
    def press(_: Outcome) -> None:
        raise KeyboardInterrupt

    figures = campaign(range(3), processes=1, each=press)
    assert (figures.interrupted, figures.seeds) == (True, 1)
