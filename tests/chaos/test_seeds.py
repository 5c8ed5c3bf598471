"""Worlds full of faults end without a violation."""

from collections import Counter

import pytest

from autoscaler.model.identifiers import SkuName
from autoscaler.simulator.world.invariants import NO_HOLD_LEFT
from autoscaler.simulator.world.schedule import FaultKind, Fleet
from tests.chaos.bugs import IN_TESTS, IN_TESTS_OF_CLUSTERS, IN_TESTS_OF_REPLICAS, WITHIN
from tests.chaos.campaign import Figures, campaign
from tests.chaos.fault_kinds import OF_CLUSTERS, OF_EC2, OF_REPLICAS, RANGES
from tests.chaos.fleet import CATALOGUE
from tests.chaos.mix import FIRST_BACKUP, LASTS, schedule_of
from tests.chaos.trial import Outcome
from tests.chaos.worlds import Worlds

SEEDS = range(WITHIN)


def test_a_seed_has_fifty_jobs_four_skus_two_hours_and_five_kinds_of_fault() -> None:
    assert len(CATALOGUE.skus) == 4
    for seed in SEEDS:
        schedule = schedule_of(seed)
        assert len(schedule.jobs) >= 50
        assert len({fault.kind for fault in schedule.faults}) >= 5
        assert LASTS == 7200.0
        assert schedule.faults_end <= LASTS
        assert {job.labels[0] for job in schedule.jobs} >= {"gpu", "cpu"}


def test_a_burst_and_jobs_of_another_repository_come_long_after_the_faults() -> None:
    assert CATALOGUE.skus[SkuName("gpu")].share == 6
    for seed in SEEDS:
        late = [job for job in schedule_of(seed).jobs if job.at > LASTS]
        assert min(job.at for job in late) > LASTS + NO_HOLD_LEFT
        (burst_class, burst), *_ = Counter(
            (job.repository, job.labels) for job in late
        ).most_common(1)
        assert {job.repository for job in late} > {burst_class[0]}
        assert burst > 5


def test_jobs_run_from_a_backup_to_its_restore_up_to_an_hour_later() -> None:
    ages = []
    for schedule in map(schedule_of, SEEDS):
        for fault in schedule.faults:
            if fault.kind is FaultKind.STORE_RESTORED:
                backup = fault.at - fault.target
                assert backup >= FIRST_BACKUP
                ages.append(fault.target)
                before = [job for job in schedule.jobs if job.at <= backup]
                assert sum(job.at + job.works > fault.at + 1500.0 for job in before) >= 6
    assert max(ages) > 2700.0


def test_the_mix_has_every_kind_of_fault() -> None:
    drawn = {fault.kind for seed in SEEDS for fault in schedule_of(seed).faults}
    assert drawn == set(FaultKind) - {*OF_CLUSTERS, *OF_REPLICAS}
    assert set(RANGES) == set(FaultKind) - set(OF_REPLICAS)


def test_every_second_world_with_clusters_has_ec2_too_and_all_kinds_of_fault() -> None:
    schedules = [schedule_of(seed, clusters=True) for seed in SEEDS]
    alone = [one for one in schedules if one.fleet is Fleet.KUBERNETES]
    assert [one.fleet for one in schedules[:4]] == 2 * [Fleet.KUBERNETES, Fleet.BOTH]
    assert not {fault.kind for one in alone for fault in one.faults} & set(OF_EC2)
    assert {fault.kind for one in schedules for fault in one.faults} == set(RANGES)
    for schedule in schedules:
        assert len({fault.kind for fault in schedule.faults} & set(OF_CLUSTERS)) >= 5


@pytest.mark.parametrize(
    ("seeds", "worlds"),
    [(range(7), Worlds.EC2), (range(3), Worlds.CLUSTERS), (range(5), Worlds.REPLICAS)],
)
def test_fifteen_worlds_full_of_faults_lose_no_job_and_leak_no_machine(
    seeds: range, worlds: Worlds
) -> None:
    figures = Figures()
    campaign(seeds, figures, processes=1, worlds=worlds)
    assert [(outcome.seed, outcome.violations) for outcome in figures.bad] == []
    assert figures.seeds == len(seeds)
    assert figures.jobs > (15 if worlds is Worlds.REPLICAS else 50) * len(seeds)


@pytest.mark.systems
@pytest.mark.case(
    "all of these faults at once, in any order, with kills between any two steps",
    topic="EC2's machines",
    source="EC2: eventual consistency; GitHub: using webhooks",
)
def test_under_all_faults_no_job_is_lost_and_no_machine_leaks() -> None:
    figures = Figures()
    campaign(IN_TESTS, figures)
    assert [(outcome.seed, outcome.violations) for outcome in figures.bad] == []
    assert figures.seeds == len(IN_TESTS)
    assert set(figures.seeds_with) == set(FaultKind) - {*OF_CLUSTERS, *OF_REPLICAS}


@pytest.mark.systems
@pytest.mark.case(
    "evictions, lost and dead nodes, image pull errors, full nodes, an API server that throttles, breaks "
    "watches and forgets versions: all at once, and no job is lost and no pod doubled",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
def test_under_all_faults_of_clusters_no_job_is_lost_and_no_pod_is_left() -> None:
    figures = Figures()
    campaign(IN_TESTS_OF_CLUSTERS, figures, worlds=Worlds.CLUSTERS)
    assert [(outcome.seed, outcome.violations) for outcome in figures.bad] == []
    assert figures.seeds == len(IN_TESTS_OF_CLUSTERS)
    assert set(figures.seeds_with) >= set(OF_CLUSTERS)


@pytest.mark.systems
def test_under_all_faults_of_replicas_one_leads_and_nothing_is_lost() -> None:
    figures = Figures()
    campaign(IN_TESTS_OF_REPLICAS, figures, worlds=Worlds.REPLICAS)
    assert [(outcome.seed, outcome.violations) for outcome in figures.bad] == []
    assert figures.seeds == len(IN_TESTS_OF_REPLICAS)
    # A clock that is ahead from the start hits nothing.
    assert set(figures.seeds_with) >= {*OF_REPLICAS} - {FaultKind.HOSTS_DISAGREE}


@pytest.mark.systems
def test_after_ctrl_c_the_figures_are_those_of_the_seeds_played() -> None:
    def press(_: Outcome) -> None:
        raise KeyboardInterrupt

    figures = Figures()
    with pytest.raises(KeyboardInterrupt):
        campaign(range(3), figures, processes=1, each=press)
    assert figures.seeds == 1
