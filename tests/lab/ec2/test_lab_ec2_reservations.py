"""Capacity reservations in the lab's EC2: launches into them, and what it refuses."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import Pool
from tests.lab.ec2.harness import Fixture

NAME = "cr-0f00"
TARGET = {
    "CapacityReservationPreference": "capacity-reservations-only",
    "CapacityReservationTarget": {"CapacityReservationId": NAME},
}


async def run(ec2: Fixture, zone: int = 0, count: int = 1, **changes: Any) -> Any:
    said = {
        "ImageId": ec2.image.id,
        "InstanceType": "g5.xlarge",
        "SubnetId": ec2.network.subnets[zone],
        "MinCount": count,
        "MaxCount": count,
        "CapacityReservationSpecification": TARGET,
    }
    return await ec2.sdk("run_instances", **said | changes)


async def refused(ec2: Fixture, code: str, **changes: Any) -> str:
    with pytest.raises(ClientError) as error:
        await run(ec2, **changes)
    assert error.value.response["Error"]["Code"] == code
    return error.value.response["Error"]["Message"]


async def left(ec2: Fixture) -> int:
    (shown,) = (await ec2.sdk("describe_capacity_reservations"))["CapacityReservations"]
    assert (shown["CapacityReservationId"], shown["TotalInstanceCount"]) == (NAME, 2)
    return int(shown["AvailableInstanceCount"])


async def test_a_reservation_that_does_not_exist_is_refused(ec2: Fixture) -> None:
    assert NAME in await refused(ec2, "InvalidCapacityReservationId.NotFound")


async def test_a_reservation_has_room_for_its_machines_and_no_more(ec2: Fixture) -> None:
    ec2.lab.reservations.add(NAME, "g5.xlarge", "us-west-2a", 2)
    assert await left(ec2) == 2
    (first,) = (await run(ec2))["Instances"]
    assert first["CapacityReservationId"] == NAME
    assert first["CapacityReservationSpecification"] == TARGET
    await run(ec2)
    assert await left(ec2) == 0
    assert "available capacity" in await refused(ec2, "ReservationCapacityExceeded")
    await ec2.sdk("terminate_instances", InstanceIds=[first["InstanceId"]])
    await refused(ec2, "ReservationCapacityExceeded")
    await ec2.clock.advance(100.0)
    assert await left(ec2) == 1
    await run(ec2)


@pytest.mark.parametrize(
    "changes", [{"zone": 1}, {"InstanceType": "g6.xlarge"}], ids=["zone", "type"]
)
async def test_a_reservation_takes_only_what_fits(ec2: Fixture, changes: dict[str, Any]) -> None:
    ec2.lab.reservations.add(NAME, "g5.xlarge", "us-west-2a", 2)
    await refused(ec2, "ReservationCapacityExceeded", **changes)


async def test_a_reservation_of_another_platform_or_state_is_refused(ec2: Fixture) -> None:
    held = ec2.lab.reservations.add(NAME, "g5.xlarge", "us-west-2a", 2, "Windows")
    await refused(ec2, "ReservationCapacityExceeded")
    held.platform, held.state = "Linux/UNIX", "cancelled"
    await refused(ec2, "ReservationCapacityExceeded")
    held.state = "active"
    await run(ec2)


async def test_reserved_capacity_and_that_of_the_pool_are_two(ec2: Fixture) -> None:
    ec2.lab.reservations.add(NAME, "g5.xlarge", "us-west-2a", 2)
    pool = Pool("g5.xlarge", "us-west-2a", CapacityType.ON_DEMAND)
    ec2.lab.faults.set_capacity(pool, 1)
    ec2.lab.quotas.set("L-DB2E81BA", 4)
    await run(ec2, count=2)
    plain: dict[str, Any] = {"CapacityReservationSpecification": {}}
    ec2.lab.quotas.set("L-DB2E81BA", None)
    await run(ec2, **plain)
    await refused(ec2, "InsufficientInstanceCapacity", **plain)


async def test_spot_is_refused(ec2: Fixture) -> None:
    ec2.lab.reservations.add(NAME, "g5.xlarge", "us-west-2a", 2)
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    await refused(ec2, "InvalidParameterCombination", **spot)


BLOCK: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
KIND: dict[str, Any] = {"InstanceType": "p4d.24xlarge"}


async def test_a_capacity_block_needs_its_market_type(ec2: Fixture) -> None:
    ends = ec2.clock.now() + 7200.0
    ec2.lab.reservations.add_block(NAME, "p4d.24xlarge", "us-west-2a", 2, ends)
    assert "market type" in await refused(ec2, "InvalidParameterValue", **KIND)
    (one,) = (await run(ec2, **KIND, **BLOCK))["Instances"]
    assert one["InstanceLifecycle"] == "capacity-block"
    (shown,) = (await ec2.sdk("describe_capacity_reservations"))["CapacityReservations"]
    assert (shown["ReservationType"], shown["EndDate"].timestamp()) == ("capacity-block", ends)


async def test_the_market_type_of_blocks_needs_a_block(ec2: Fixture) -> None:
    ec2.lab.reservations.add(NAME, "g5.xlarge", "us-west-2a", 2)
    await refused(ec2, "InvalidParameterValue", **BLOCK)


async def test_a_capacity_block_takes_no_machine_before_its_start_and_near_its_end(
    ec2: Fixture,
) -> None:
    ends = ec2.clock.now() + 3600.0
    held = ec2.lab.reservations.add_block(NAME, "p4d.24xlarge", "us-west-2a", 2, ends)
    held.state = "scheduled"
    code = "InvalidCapacityReservationState.PendingActivation"
    assert "not active yet" in await refused(ec2, code, **KIND, **BLOCK)
    held.state = "active"
    await run(ec2, **KIND, **BLOCK)
    await ec2.clock.advance(1800.0)
    await refused(ec2, "InsufficientInstanceCapacity", **KIND, **BLOCK)


async def test_a_fleet_of_a_capacity_block_has_no_other_target(ec2: Fixture) -> None:
    with pytest.raises(ClientError) as error:
        await ec2.sdk(
            "create_fleet",
            Type="instant",
            LaunchTemplateConfigs=[],
            TargetCapacitySpecification={
                "TotalTargetCapacity": 2,
                "OnDemandTargetCapacity": 1,
                "DefaultTargetCapacityType": "capacity-block",
            },
        )
    assert error.value.response["Error"]["Code"] == "InvalidFleetConfig"
