"""A provider that one line registers serves jobs in the chaos worlds like the world's own.

It launches three machines in a request, has no launch rate, and its proofs contain a machine's ID only. Its
catalogue comes from a fleet.yaml.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.controller.ports.provider import Provider
from autoscaler.model.identifiers import SkuName
from autoscaler.simulator.world.ec2.provider import SimulatedProvider
from autoscaler.simulator.world.schedule import JobArrival, Schedule
from autoscaler.simulator.world.setting import Setting
from tests.chaos.fleet import SETTING
from tests.chaos.mix import schedule_of
from tests.chaos.trial import play
from tests.providers.memory.fleet import loaded, opened_catalogue, providers
from tests.providers.memory.provider import CLOUDS, MemoryProvider

pytestmark = pytest.mark.systems

ARM = SkuName("arm")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    configuration = loaded(tmp_path)
    made = providers(configuration)

    def connect(cloud: SimulatedProvider) -> Provider:
        CLOUDS[f"cloud-{cloud.name}"] = cloud
        return made[cloud.name]

    catalogue = opened_catalogue(configuration)
    skus = dict(catalogue.skus)
    # The worlds' jobs ask for `arm`, which fleet.yaml refuses as a SKU: GitHub has a label of that name.
    armed = skus.pop(SkuName("armed"))
    skus[ARM] = replace(armed, name=ARM, labels=frozenset({"arm"}))
    catalogue = replace(catalogue, skus=skus)
    return replace(SETTING, catalogue=catalogue, quota=catalogue.limits.quotas, connect=connect)


def test_jobs_are_served(setting: Setting) -> None:
    jobs = tuple(
        JobArrival(5.0 + n, n, (sku,), 60.0)
        for n, sku in enumerate(("gpu", "gpu", "big", "cpu", "arm", "arm", "arm", "arm", "arm"), 1)
    )
    outcome = play(Schedule(0, jobs, (), lists=False), setting)
    assert outcome.violations == ()
    assert outcome.jobs == len(jobs)
    assert isinstance(setting.connect(CLOUDS["cloud-east"]), MemoryProvider)
    assert sum(one.sku == ARM for one in CLOUDS["cloud-west"].instances.values()) >= 5


@pytest.mark.parametrize("seed", [1, 5, 10, 12])
def test_faults_do_no_harm(setting: Setting, seed: int) -> None:
    outcome = play(schedule_of(seed), setting)
    assert outcome.violations == ()
    assert outcome.hits
