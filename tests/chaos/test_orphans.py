"""Which registrations without a machine are a violation at the end of a world."""

from dataclasses import replace

import pytest

from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderMachineId,
    RunnerName,
    SkuName,
)
from autoscaler.simulator.world.controller.store import INSTALLATION
from autoscaler.simulator.world.ec2.orphans import orphaned
from autoscaler.simulator.world.instances import Instance, MachineActivity
from autoscaler.simulator.world.jobs import Registration
from tests.chaos.fleet import CATALOGUE

CPU = SkuName("cpu")
OURS = CATALOGUE.with_installations(Installations(InstallationId(INSTALLATION)))


def registration(installation: str = INSTALLATION) -> Registration:
    name = RunnerName(f"{OURS.fleet}-{installation}-m1-1")
    return Registration(1, "org:acme", name, frozenset({"cpu"}), 0.0)


def test_a_registration_is_orphaned_unless_it_is_deleted_or_of_an_unknown_installation() -> None:
    one, unknown = registration(), registration("deadbeef")
    deleted = replace(one, deleted_at=1.0)
    assert orphaned([one, unknown, deleted], [], OURS) == [one]


@pytest.mark.parametrize("listens", [True, False])
def test_a_registration_is_not_orphaned_while_a_machine_listens(listens: bool) -> None:
    one, offering = registration(), CATALOGUE.skus[CPU].launch_options[0].offerings[0]
    there = Instance(
        ProviderMachineId("i-1"), LaunchRequestId("c1"), CPU, offering, INSTALLATION, 0.0
    )
    activity = MachineActivity(there, registration=one, listens=listens)
    assert orphaned([one], [activity], OURS) == ([] if listens else [one])
