"""The life of an instance: its states, boots and terminations, leaks, and listings."""

import asyncio
import base64

import pytest
from botocore.exceptions import ClientError

from lab.ec2.instances import InstanceState
from lab.ec2.lifecycle import FILES_GB, FILES_TAG
from tests.lab.ec2.harness import LISTED, PENDING, SHUTTING_DOWN, Fixture, launched


async def state_of(ec2: Fixture, name: str) -> str:
    (machine,) = await ec2.described(InstanceIds=[name])
    return str(machine["State"]["Name"])


async def test_an_instance_is_pending_then_running_and_boots_with_its_user_data(
    ec2: Fixture,
) -> None:
    (name,) = launched(await ec2.fleet(1))
    await ec2.clock.advance(PENDING - 1)
    assert await state_of(ec2, name) == "pending"
    assert ec2.host.machines == {}
    await ec2.clock.advance(1)
    assert name in ec2.host.machines
    assert await state_of(ec2, name) == "running"
    machine = ec2.host.machines[name]
    assert machine.user_data == "#!/bin/sh\n"
    assert (machine.platform, machine.instance_type) == ("linux", "g5.xlarge")
    assert machine.metadata_url == ec2.lab.metadata_url(name)
    (one,) = ec2.lab.machines_left()
    assert one.running_at == one.launched_at + PENDING


@pytest.mark.case(
    "Windows images boot Windows machines, with more time",
    topic="Images and disks",
    source="EC2: Windows Fast Launch",
)
async def test_windows_images_boot_windows_machines(ec2: Fixture) -> None:
    windows = ec2.lab.images.add("runner-windows", platform="windows", root_device="/dev/sda1")
    user_data = base64.b64encode(b"<powershell></powershell>").decode()
    await ec2.make_template(ImageId=windows.id, UserData=user_data)
    (name,) = await ec2.running()
    assert ec2.host.machines[name].platform == "windows"
    assert ec2.host.machines[name].user_data == "<powershell></powershell>"
    (machine,) = await ec2.described(InstanceIds=[name])
    assert (machine["Platform"], machine["RootDeviceName"]) == ("windows", "/dev/sda1")


async def test_a_machine_has_the_disk_of_its_launch_less_the_files_of_its_image(
    ec2: Fixture,
) -> None:
    full = ec2.lab.images.add("runner-full", snapshot_gb=30, tags={FILES_TAG: "99.5"})
    (plain,) = await ec2.running()
    await ec2.make_template(ImageId=full.id)
    (filled,) = await ec2.running()
    assert ec2.host.machines[plain].free_gb == 100 - FILES_GB
    assert ec2.host.machines[filled].free_gb == 0.5


async def test_a_terminated_instance_shuts_down_and_stays_listed_for_a_while(ec2: Fixture) -> None:
    (name,) = await ec2.running()
    answer = await ec2.sdk("terminate_instances", InstanceIds=[name])
    (change,) = answer["TerminatingInstances"]
    assert change["CurrentState"] == {"Code": 32, "Name": "shutting-down"}
    assert change["PreviousState"] == {"Code": 16, "Name": "running"}
    await ec2.clock.advance(SHUTTING_DOWN - 1)
    assert await state_of(ec2, name) == "shutting-down"
    await ec2.clock.advance(1)
    assert ec2.lab.machines_left() == ()
    assert ec2.host.shut_off == [name]
    (machine,) = await ec2.described(InstanceIds=[name])
    assert machine["State"]["Name"] == "terminated"
    assert machine["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert machine["StateTransitionReason"].startswith("User initiated (")
    (again,) = (await ec2.sdk("terminate_instances", InstanceIds=[name]))["TerminatingInstances"]
    assert again["CurrentState"]["Name"] == "terminated"
    await ec2.clock.advance(LISTED)
    assert await ec2.described() == []
    with pytest.raises(ClientError, match=f"The instance ID '{name}' does not exist"):
        await ec2.sdk("terminate_instances", InstanceIds=[name])


async def test_terminating_a_pending_instance_never_boots_it(ec2: Fixture) -> None:
    names = launched(await ec2.fleet(2))
    await ec2.ended(names)
    await ec2.clock.advance(PENDING)
    assert ec2.lab.machines_left() == ()
    assert ec2.host.machines == {}
    assert [one.billed_seconds(1e12) for one in ec2.lab.instances] == [0, 0]


async def test_a_request_with_an_unknown_id_terminates_nothing(ec2: Fixture) -> None:
    (name,) = await ec2.running()
    missing = ["i-0123456789abcdef0", "i-0123456789abcdef1"]
    with pytest.raises(ClientError, match="i-0123456789abcdef0, i-0123456789abcdef1") as error:
        await ec2.sdk("terminate_instances", InstanceIds=[name, *missing])
    assert error.value.response["Error"]["Code"] == "InvalidInstanceID.NotFound"
    assert await state_of(ec2, name) == "running"


async def test_a_machine_that_powers_off_is_terminated(ec2: Fixture) -> None:
    (name,) = await ec2.running()
    await ec2.host.machines[name].powered_off()
    (machine,) = await ec2.described(InstanceIds=[name])
    assert machine["State"]["Name"] == "shutting-down"
    assert machine["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    await ec2.clock.advance(SHUTTING_DOWN)
    assert ec2.lab.machines_left() == ()
    assert ec2.host.shut_off == []


async def test_without_the_terminate_behavior_a_power_off_only_stops(ec2: Fixture) -> None:
    await ec2.make_template(InstanceInitiatedShutdownBehavior="stop")
    (name,) = await ec2.running()
    await ec2.host.machines[name].powered_off()
    await ec2.clock.advance(SHUTTING_DOWN)
    assert await state_of(ec2, name) == "stopped"
    assert [one.id for one in ec2.lab.machines_left()] == [name]
    await ec2.sdk("terminate_instances", InstanceIds=[name])
    assert ec2.lab.machines_left() == ()


async def test_an_instance_with_the_leak_fault_never_terminates_and_is_counted(
    ec2: Fixture,
) -> None:
    ec2.lab.faults.leak_next(1)
    leaking, other = await ec2.running(2)
    answer = await ec2.sdk("terminate_instances", InstanceIds=[leaking, other])
    states = [one["CurrentState"]["Name"] for one in answer["TerminatingInstances"]]
    assert states == ["shutting-down", "shutting-down"]
    await ec2.host.machines[leaking].powered_off()
    await ec2.clock.advance(SHUTTING_DOWN)
    assert [one.id for one in ec2.lab.machines_left()] == [leaking]
    assert await state_of(ec2, leaking) == "running"
    assert ec2.host.shut_off == [other]


async def test_the_lab_counts_instance_hours_and_the_peak(ec2: Fixture) -> None:
    names = await ec2.running(3)
    await ec2.clock.advance(1800)
    assert ec2.lab.machine_hours() == pytest.approx(1.5)
    await ec2.ended(names)
    await ec2.clock.advance(1800)
    assert ec2.lab.machine_hours() == pytest.approx(1.5)
    assert [one.billed_seconds(0.0) for one in ec2.lab.instances] == [1800.0] * 3
    assert (ec2.lab.instances.peak, ec2.lab.instances.alive) == (3, 0)
    assert {one.state for one in ec2.lab.instances} == {InstanceState.TERMINATED}
    assert [one.tags["sku"] for one in ec2.lab.instances] == ["gpu"] * 3


async def test_root_volumes_are_deleted_with_their_instances_unless_configured_otherwise(
    ec2: Fixture,
) -> None:
    (name,) = await ec2.running()
    (volume,) = (await ec2.sdk("describe_volumes"))["Volumes"]
    assert (volume["State"], volume["Size"]) == ("in-use", 100)
    assert volume["Attachments"][0]["InstanceId"] == name
    await ec2.make_template(
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 40, "DeleteOnTermination": False}}
        ]
    )
    await ec2.running()
    names = [one.id for one in ec2.lab.machines_left()]
    await ec2.ended(names)
    available = [{"Name": "status", "Values": ["available"]}]
    (orphan,) = (await ec2.sdk("describe_volumes", Filters=available))["Volumes"]
    assert (orphan["Size"], orphan["Attachments"]) == (40, [])
    assert ec2.lab.volumes.left() == (orphan["VolumeId"],)
    await ec2.sdk("delete_volume", VolumeId=orphan["VolumeId"])
    assert (await ec2.sdk("describe_volumes"))["Volumes"] == []
    assert ec2.lab.volumes.left() == ()


async def test_a_boot_in_progress_finishes_before_the_shutdown(ec2: Fixture) -> None:
    ec2.host.hold = asyncio.Event()
    (name,) = launched(await ec2.fleet(1))
    await ec2.clock.advance(PENDING)
    await ec2.ended([name])
    assert (list(ec2.host.machines), ec2.host.shut_off) == ([], [])
    ec2.host.hold.set()
    await ec2.clock.advance(0)
    assert (list(ec2.host.machines), ec2.host.shut_off) == ([name], [name])
    await ec2.clock.advance(SHUTTING_DOWN)
    assert ec2.lab.machines_left() == ()
