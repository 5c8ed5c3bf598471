"""The faults of the lab's EC2, each seen through the real SDK."""

import asyncio
from collections.abc import Mapping

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import InstanceState, Pool
from tests.lab.ec2.harness import PENDING, Fixture, connect, launched
from tests.patience import PATIENCE


def pool(ec2: Fixture, instance_type: str = "g5.xlarge", zone: int = 0) -> Pool:
    return Pool(instance_type, ec2.network.zones[zone], CapacityType.ON_DEMAND)


async def test_capacity_that_is_short_for_a_while_comes_back_by_itself(ec2: Fixture) -> None:
    only = [{"InstanceType": "g5.xlarge", "SubnetId": ec2.network.subnets[0]}]
    ec2.lab.faults.set_capacity(pool(ec2), 0, seconds=60.0)
    ec2.lab.faults.refuse(pool(ec2), "Unsupported", seconds=90.0)
    assert launched(await ec2.fleet(1, overrides=only)) == []
    await ec2.clock.advance(60.0)
    (error,) = (await ec2.fleet(1, overrides=only))["Errors"]
    assert error["ErrorCode"] == "Unsupported"
    await ec2.clock.advance(30.0)
    assert len(launched(await ec2.fleet(1, overrides=only))) == 1


@pytest.mark.case(
    "an instant fleet answers 200 with machines, and with an error for each override that gave "
    "fewer",
    topic="EC2's API",
    source="EC2: instant fleets",
)
async def test_a_partial_fleet_is_deterministic(ec2: Fixture) -> None:
    """HTTP 200 with instances and with an error for each override that gave less."""
    shapes = []
    for _ in range(2):
        for zone, machines in enumerate((2, 0, 1)):
            ec2.lab.faults.set_capacity(pool(ec2, zone=zone), machines)
            ec2.lab.faults.set_capacity(pool(ec2, "g6.xlarge", zone), 0)
        fleet = await ec2.fleet(5)
        given = [(g["InstanceType"], len(g["InstanceIds"])) for g in fleet["Instances"]]
        failed = [
            (e["ErrorCode"], e["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"])
            for e in fleet["Errors"]
        ]
        shapes.append((given, failed))
        await ec2.ended(launched(fleet))
    assert shapes[0] == shapes[1]
    assert shapes[0][0] == [("g5.xlarge", 2), ("g5.xlarge", 1)]
    assert [zone for _, zone in shapes[0][1]] == list(ec2.network.zones) * 2


@pytest.mark.case(
    "a connection breaks before the call was carried out",
    topic="EC2's API",
    source="EC2: idempotency",
)
async def test_a_request_that_is_cut_off_is_not_carried_out(ec2: Fixture) -> None:
    ec2.lab.faults.cut_calls("CreateFleet", 1)
    with pytest.raises(HTTPClientError):
        await ec2.fleet(2, ClientToken="t-1")
    assert len(ec2.lab.instances) == 0
    assert len(launched(await ec2.fleet(2, ClientToken="t-1"))) == 2
    assert ec2.lab.faults.cut == {"CreateFleet": 1}


@pytest.mark.case(
    "no answer arrives at all",
    topic="EC2's API",
    source="EC2: idempotency",
)
async def test_an_answer_is_lost_after_a_silence(ec2: Fixture) -> None:
    ec2.lab.faults.lose_answers("CreateFleet", 1, silence=45.0)
    call = asyncio.create_task(ec2.fleet(1))
    async with asyncio.timeout(PATIENCE):
        while not ec2.lab.faults.lost:  # noqa: ASYNC110 - the SDK is in a thread
            await asyncio.sleep(0.01)
    assert len(ec2.lab.instances) == 1
    await ec2.clock.advance(44.0)
    assert not call.done()
    await ec2.clock.advance(1.0)
    with pytest.raises(HTTPClientError):
        await call


async def test_a_callback_runs_when_a_request_breaks(ec2: Fixture) -> None:
    seen: list[tuple[str, int]] = []

    def callback(fields: Mapping[str, str]) -> None:
        seen.append((fields["ClientToken"], len(ec2.lab.instances)))

    ec2.lab.faults.cut_calls("CreateFleet", 1, callback)
    ec2.lab.faults.lose_answers("CreateFleet", 1, then=callback)
    for _ in range(2):
        with pytest.raises(HTTPClientError):
            await ec2.fleet(2, ClientToken="t-1")
    assert len(launched(await ec2.fleet(2, ClientToken="t-1"))) == 2
    assert seen == [("t-1", 0), ("t-1", 2)]


async def test_only_answers_to_calls_that_were_carried_out_are_lost(ec2: Fixture) -> None:
    ec2.lab.faults.fail_calls("CreateFleet", "RequestLimitExceeded", 1)
    ec2.lab.faults.lose_answers("CreateFleet", 1)
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        await ec2.fleet(1)
    with pytest.raises(HTTPClientError):
        await ec2.fleet(1)
    assert len(launched(await ec2.fleet(1))) == 1


async def test_the_lab_records_the_requests_of_each_client_token(ec2: Fixture) -> None:
    for _ in range(2):
        await ec2.fleet(1, ClientToken="t-2")
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        await ec2.fleet(2, ClientToken="t-2")
    first, again, other = ec2.lab.sendings["t-2"]
    assert first == again
    assert other != first


@pytest.mark.case(
    "a machine is in no list right after its launch",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
async def test_a_new_machine_is_not_visible_at_first(ec2: Fixture) -> None:
    """At first no list shows it, and describing or terminating it answers NotFound."""
    ec2.lab.faults.machines_unseen = 20.0
    (name,) = launched(await ec2.fleet(1))
    assert await ec2.described() == []
    for operation in ("describe_instances", "terminate_instances"):
        with pytest.raises(ClientError, match="NotFound"):
            await ec2.sdk(operation, InstanceIds=[name])
    await ec2.clock.advance(20.0)
    assert [one["InstanceId"] for one in await ec2.described()] == [name]
    await ec2.clock.advance(PENDING)
    assert name in ec2.host.machines


@pytest.mark.case(
    "a launch template is NotFound right after its creation",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
async def test_a_new_launch_template_is_not_visible_at_first(ec2: Fixture) -> None:
    ec2.lab.faults.templates_unseen = 5.0
    await ec2.make_template()
    with pytest.raises(ClientError, match=r"InvalidLaunchTemplateId\.NotFound"):
        await ec2.fleet(1)
    await ec2.clock.advance(5.0)
    assert len(launched(await ec2.fleet(1))) == 1


@pytest.mark.case(
    "a machine goes from pending to terminated: its StateReason decides the class",
    topic="EC2's machines",
    source="EC2: StateReason",
)
@pytest.mark.parametrize(
    "reason",
    [
        "Client.VolumeLimitExceeded",
        "Client.InternalError",
        "Server.InsufficientInstanceCapacity",
        "Server.InternalError",
    ],
)
async def test_a_machine_goes_from_pending_to_terminated(ec2: Fixture, reason: str) -> None:
    ec2.lab.faults.fail_starts(1, reason)
    doomed, good = launched(await ec2.fleet(2))
    await ec2.clock.advance(PENDING - 1)
    assert {one["State"]["Name"] for one in await ec2.described()} == {"pending"}
    await ec2.clock.advance(1)
    shown = {one["InstanceId"]: one for one in await ec2.described()}
    assert shown[doomed]["State"]["Name"] == "terminated"
    assert shown[doomed]["StateReason"]["Code"] == reason
    assert shown[good]["State"]["Name"] == "running"
    assert list(ec2.host.machines) == [good]
    (dead, _) = ec2.lab.instances
    assert (dead.running_at, dead.billed_seconds(1e12)) == (None, 0.0)
    assert [one.id for one in ec2.lab.machines_left()] == [good]
    # Its volume is deleted with it, and uses no quota.
    assert len(ec2.lab.volumes.left()) == 1
    assert ec2.lab.instances.taken(dead.pool) == 1


async def test_instance_starts_fail_in_one_pool_until_the_fault_ends(ec2: Fixture) -> None:
    ec2.lab.faults.fail_starts(9, "Client.InternalError", pool=pool(ec2))
    overrides = [{"InstanceType": "g5.xlarge", "SubnetId": s} for s in ec2.network.subnets[:2]]
    ec2.lab.faults.set_capacity(pool(ec2), 1)
    await ec2.fleet(2, overrides=overrides)
    await ec2.clock.advance(PENDING)
    states = [one.state for one in ec2.lab.instances]
    assert states == [InstanceState.TERMINATED, InstanceState.RUNNING]
    ec2.lab.faults.fail_starts(0, "Client.InternalError")
    await ec2.running(1)


@pytest.mark.case(
    "a volume outlives its machine: it is deleted, volumes of others are kept",
    topic="Images and disks",
    source="EC2: volumes after termination",
)
async def test_a_volume_remains_after_its_instance_with_its_tags(ec2: Fixture) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "fleet", "Value": "ci"}]}]
    await ec2.make_template(TagSpecifications=tags)
    ec2.lab.faults.leave_disks(2)
    names = await ec2.running(3)
    await ec2.ended(names)
    ours = [
        {"Name": "tag:fleet", "Values": ["ci"]},
        {"Name": "status", "Values": ["available"]},
    ]
    left = (await ec2.sdk("describe_volumes", Filters=ours, MaxResults=5))["Volumes"]
    assert sorted(one["VolumeId"] for one in left) == sorted(ec2.lab.volumes.left())
    assert len(left) == 2
    assert left[0]["CreateTime"].timestamp() == ec2.lab.instances.find(names[0]).launched_at  # type: ignore[union-attr]
    for one in left:
        await ec2.sdk("delete_volume", VolumeId=one["VolumeId"])
    assert ec2.lab.volumes.left() == ()


async def test_volumes_come_in_pages(ec2: Fixture) -> None:
    await ec2.running(12)
    seen: list[str] = []
    params: dict[str, object] = {"MaxResults": 5}
    while True:
        page = await ec2.sdk("describe_volumes", **params)
        assert len(page["Volumes"]) <= 5
        seen += [one["VolumeId"] for one in page["Volumes"]]
        if not page.get("NextToken"):
            break
        params["NextToken"] = page["NextToken"]
    assert sorted(seen) == sorted(one.volume_id for one in ec2.lab.instances)


async def test_a_newer_image_appears_between_two_launches(ec2: Fixture) -> None:
    await ec2.clock.advance(100.0)
    newer = ec2.lab.images.publish(ec2.image, "runner-linux-2")
    assert ec2.lab.images.named("runner-linux-*") == [ec2.image, newer]
    images = (await ec2.sdk("describe_images", Owners=["self"]))["Images"]
    newest = max(images, key=lambda one: one["CreationDate"])
    assert newest["ImageId"] == newer.id
    assert (newer.created_at, newer.snapshot_gb) == (ec2.clock.now(), ec2.image.snapshot_gb)
    assert ec2.lab.images.add("runner-arm-1").created_at > newer.created_at


async def test_console_output_is_the_end_of_what_was_written(ec2: Fixture) -> None:
    (name,) = await ec2.running()
    ec2.host.written[name] = "lost\n" + "x" * 66_000 + "\nkernel panic: " + "é" * 200
    answer = await ec2.sdk("get_console_output", InstanceId=name)
    # The SDK decodes base64 by itself.
    assert answer["Output"].endswith("é" * 200)
    assert "kernel panic" in answer["Output"]
    assert "lost" not in answer["Output"]
    assert answer["Timestamp"].timestamp() == ec2.clock.now()
    with pytest.raises(ClientError, match="NotFound"):
        await ec2.sdk("get_console_output", InstanceId="i-0123456789abcdef0")


@pytest.mark.case(
    "the controller's temporary credentials expire: EC2 and AWS's other services refuse each call",
    topic="EC2's API",
    source="EC2: error codes",
)
async def test_expired_credentials_are_refused_by_every_service(ec2: Fixture) -> None:
    ec2.lab.faults.credentials_expired = True
    with pytest.raises(ClientError, match="RequestExpired"):
        await ec2.fleet(1)
    with pytest.raises(ClientError, match="ExpiredTokenException"):
        await connect(ec2.lab, "service-quotas")("list_service_quotas", ServiceCode="ec2")
    ec2.lab.faults.credentials_expired = False
    assert len(launched(await ec2.fleet(1))) == 1
