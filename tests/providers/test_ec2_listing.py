"""Termination reasons of listed instances, and that a missing instance proves nothing."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import MachineId, ProviderMachineId
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.providers.ec2.launching.termination import terminate_machines
from autoscaler.providers.ec2.listing import listed_machine
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.process import Clients
from autoscaler.providers.ec2.worker.rows import InstanceRow
from tests.ledger.builders import World
from tests.providers.conftest import SKU
from tests.providers.doubles import ScriptedApi
from tests.providers.ec2_keys import with_keys


def instance(state: str, code: str) -> InstanceRow:
    """A `gpu` machine of the ledger's tests as EC2 lists it."""
    return InstanceRow(
        id="i-c0",
        state=state,
        instance_type="g5.xlarge",
        zone="a",
        lifecycle="on-demand",
        platform="",
        image="ami-1",
        launch_time="t0",
        reason=f"{code}: words",
        installation="0badcafe",
        sku="gpu",
        launch_request="c",
        ended_by=code,
    )


@pytest.mark.case(
    "a machine goes from pending to terminated: its StateReason decides the class",
    topic="EC2's machines",
    source="EC2: StateReason",
)
@pytest.mark.case(
    "a machine goes from pending to terminated with Client.InternalError: an operator must give "
    "access to the KMS key",
    topic="EC2's machines",
    source="EC2: launch problems",
)
@pytest.mark.parametrize(
    ("code", "failure", "scope", "held"),
    [
        (
            "Client.VolumeLimitExceeded",
            FailureClass.QUOTA,
            FailureScope.PROVIDER,
            {f"capacity_type:east/{kind}" for kind in CapacityType},
        ),
        ("Client.InternalError", FailureClass.CONFIGURATION, None, {"option:gpu/0"}),
        ("Client.InvalidSnapshot.NotFound", FailureClass.CONFIGURATION, None, {"option:gpu/0"}),
        (
            "Server.InsufficientInstanceCapacity",
            FailureClass.CAPACITY,
            None,
            {"offering:east/g5.xlarge/a/on-demand"},
        ),
        (
            "Server.SpotInstanceTermination",
            FailureClass.CAPACITY,
            None,
            {"offering:east/g5.xlarge/a/on-demand"},
        ),
        ("Server.InternalError", None, None, set()),
        ("Client.UserInitiatedShutdown", None, None, set()),
        ("Client.InstanceInitiatedShutdown", None, None, set()),
    ],
)
def test_the_termination_reason_of_a_pending_machine_decides_what_is_put_on_hold(
    settings: Ec2Settings,
    code: str,
    failure: FailureClass | None,
    scope: FailureScope | None,
    held: set[str],
) -> None:
    row = instance("terminated", code)
    shown = listed_machine(dataclasses.replace(settings, fleet="ci"), row)
    assert (shown.failure, shown.scope) == (failure, scope)
    world = World()
    world.launch(1)
    world.lists(shown)
    machine = world.machine("c0")
    assert (machine.state, machine.failure) == (
        MachineState.TERMINATED,
        failure or FailureClass.UNKNOWN,
    )
    assert machine.reason == f"{code}: words"
    cooldowns = world.state.cooldowns.items()
    assert {key for key, one in cooldowns if one.until > world.now} == held


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_reason_counts_only_after_the_machine_shuts_down(
    settings: Ec2Settings, state: str
) -> None:
    shown = listed_machine(settings, instance(state, "Client.InternalError"))
    assert (shown.terminated, shown.leaving, shown.failure) == (False, False, None)


@pytest.mark.parametrize("state", ["shutting-down", "stopping", "stopped"])
def test_a_machine_that_shuts_down_shows_its_reason(settings: Ec2Settings, state: str) -> None:
    shown = listed_machine(settings, instance(state, "Client.InternalError"))
    assert (shown.terminated, shown.leaving) == (False, True)
    assert (shown.failure, shown.reason) == (
        FailureClass.CONFIGURATION,
        "Client.InternalError: words",
    )
    assert shown.error == "Client.InternalError"
    silent = instance(state, "")._replace(reason="")
    assert listed_machine(settings, silent).reason == state


@pytest.mark.case(
    "NotFound for a machine that is being terminated does not prove that it is gone",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
async def test_a_machine_not_found_at_its_termination_is_not_proved_terminated() -> None:
    def answer(*_: object) -> None:
        message = "The instance ID 'i-0c0' does not exist"
        raise ProviderError(FailureClass.UNKNOWN, "InvalidInstanceID.NotFound", message)

    world = World()
    world.launch(1)
    world.do(e.TerminationRequested, MachineId("c0"), TerminationReason.OPERATOR, "why")
    assert await terminate_machines(ScriptedApi(answer), [ProviderMachineId("i-0c0")]) == {}
    world.do(e.TerminationAnswered, MachineId("c0"))
    assert world.machine("c0").state is MachineState.TERMINATING
    assert world.fleet().usage.machines == 1
    for state, moment in ((MachineState.TERMINATING, 1.0), (MachineState.TERMINATED, 61.0)):
        world.now += moment
        world.lists()
        assert world.machine("c0").state is state


@pytest.mark.case(
    "a machine is in no list right after its launch",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
def test_a_machine_missing_from_the_first_listing_still_boots(
    settings: Ec2Settings,
) -> None:
    world = World()
    world.launch(1)
    for pause in (1.0, 30.0):
        world.now += pause
        world.lists()
        assert world.machine("c0").state is MachineState.LAUNCHED
    world.lists(listed_machine(settings, instance("pending", "")))
    for pause in (31.0, 30.0):
        world.now += pause
        world.lists()
        assert world.machine("c0").state is MachineState.LAUNCHED


class _Images:
    """DescribeImages' answer with an image of two EBS disks and an ephemeral one, or with these images."""

    def __init__(self, *images: Mapping[str, object]) -> None:
        self._images = images

    def describe_images(self, **_: object) -> dict[str, object]:
        disks = [
            {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 40}},
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}},
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
        ]
        image = {"ImageId": "ami-1", "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": disks}
        return {"Images": self._images or [image]}


def answered(client: object, operation: str, arguments: Mapping[str, Any]) -> Any:
    return Clients(lambda _: client).call(operation, arguments)


def test_an_image_of_the_recipes_is_used_only_after_its_test() -> None:
    tags = [{"Key": "autoscaler:published", "Value": "2026-11-23T21:00:00Z"}]
    images = (
        {"ImageId": "ami-1", "Name": "autoscaler/runner-1"},
        {"ImageId": "ami-2", "Name": "autoscaler/runner-2", "Tags": tags},
        {"ImageId": "ami-3", "Name": "runner-3"},
        {"ImageId": "ami-4", "Name": "autoscaler/runner-4", "Tags": [{"Key": "a", "Value": "b"}]},
    )
    arguments = {"owner": "self", "name": "*", "page": None}
    found, _ = answered(_Images(*images), "DescribeImages", arguments)
    assert [image.id for image in found] == ["ami-2", "ami-3"]


def test_an_images_disks_are_read_without_the_ephemeral_ones() -> None:
    arguments = {"owner": "self", "name": "x", "page": None}
    ((image,), _) = answered(_Images(), "DescribeImages", arguments)
    assert (image.root_device, image.root_gb) == ("/dev/sda1", 8)
    assert image.other_disks == (("/dev/sdf", 40),)


LINUX_DOLLARS, WINDOWS_DOLLARS = 1.006, 1.006 + 4 * 0.046
"""g5.xlarge in us-east-1, which has four vCPUs."""


@pytest.mark.case(
    "Windows costs more for each vCPU",
    topic="EC2's API",
    source="EC2: on-demand prices",
)
@pytest.mark.parametrize(
    ("sku_os", "platform", "dollars"),
    [
        (OperatingSystem.WINDOWS, "windows", WINDOWS_DOLLARS),
        (OperatingSystem.WINDOWS, "", WINDOWS_DOLLARS),
        (OperatingSystem.LINUX, "", LINUX_DOLLARS),
        (None, "windows", WINDOWS_DOLLARS),
        (None, "", LINUX_DOLLARS),
    ],
)
def test_a_listed_windows_machine_counts_at_the_windows_price(
    settings: Ec2Settings, sku_os: OperatingSystem | None, platform: str, dollars: float
) -> None:
    """The SKU gives the operating system, or EC2's platform field if the SKU does not exist any more."""
    row = with_keys(settings.skus[SKU], os=sku_os or OperatingSystem.LINUX)
    known = {SKU: row} if sku_os is not None else {}
    listed = instance("running", "")._replace(sku=SKU, platform=platform)
    shown = listed_machine(dataclasses.replace(settings, skus=known), listed)
    assert shown.dollars_per_hour == pytest.approx(dollars)


def test_a_listed_machine_counts_at_the_current_price_or_else_at_the_settings(
    settings: Ec2Settings,
) -> None:
    of_today = dataclasses.replace(settings.price_list, overrides={"g5.xlarge": 7.5})
    of_settings = with_keys(settings, prices={"g5.xlarge": 2.5})
    row = instance("running", "")
    assert listed_machine(of_settings, row, of_today).dollars_per_hour == 7.5
    assert listed_machine(of_settings, row).dollars_per_hour == 2.5


class _Instances:
    """DescribeInstances' answer with one machine, `fields` beside what every machine has."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def describe_instances(self, **_: object) -> dict[str, object]:
        one = {
            "InstanceId": "i-1",
            "State": {"Name": "running"},
            "InstanceType": "g5.xlarge",
            "LaunchTime": datetime(2026, 11, 22, tzinfo=UTC),
        }
        return {"Reservations": [{"Instances": [one | self._fields]}]}


@pytest.mark.parametrize(
    ("fields", "platform"),
    [({"Platform": "windows"}, "windows"), ({"Platform": "Windows"}, "windows"), ({}, "")],
)
def test_a_machines_platform_is_read_as_ec2_writes_it(
    fields: dict[str, object], platform: str
) -> None:
    """`windows` for Windows, nothing for the rest; the SDK's model has it with a capital letter."""
    arguments = {"filter": "tag:x", "values": ["y"], "size": 5, "page": None}
    ((row,), page) = answered(_Instances(**fields), "DescribeInstances", arguments)
    assert (row.platform, page) == (platform, None)
