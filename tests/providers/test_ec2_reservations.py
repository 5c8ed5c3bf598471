"""The capacity reservations that launch options name: what is requested of them, and what is logged."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.listing import listed_machine
from autoscaler.providers.ec2.prices.quotas import used_by_others
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.process import Clients
from autoscaler.providers.ec2.worker.rows import InstanceRow, ReservationRow
from tests.providers.conftest import SKU
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi
from tests.providers.ec2_keys import option_of, with_keys

A, B = "us-east-1a", "us-east-1b"
HELD = ReservationRow("cr-1", "g5.xlarge", B, "Linux/UNIX", "active", 3)
OTHER = HELD._replace(id="cr-2", zone=A)


@dataclass
class Account:
    """Answers everything that a provider reads. `pages` are those of DescribeCapacityReservations."""

    pages: list[list[ReservationRow] | ProviderError] = field(default_factory=list)

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "DescribeCapacityReservations":
            number = int(arguments["page"] or 0)
            page = self.pages[number]
            if isinstance(page, ProviderError):
                raise page
            return page, str(number + 1) if number + 1 < len(self.pages) else None
        if operation == "GetCallerIdentity":
            return "123456789012"
        if operation == "DescribeSubnets":
            return [("subnet-a", A, 100), ("subnet-b", B, 100)]
        # No zone is listed, so every zone sells every type.
        return [], None


def provider_of(
    account: Account, settings: Ec2Settings, name: str | None = "cr-1", **sku: Any
) -> tuple[Ec2Provider, ScriptedApi]:
    option = option_of("g5.xlarge", placement_group="near", capacity_reservation=name)
    changed = with_keys(replace(settings.skus[SKU], options={0: option}), **sku)
    api = ScriptedApi(account.answer)
    given = replace(settings, skus={SKU: changed})
    return Ec2Provider(given, RememberingTelemetry(), ManualClock(), api), api


class Shown:
    """The client of EC2, whose account has this reservation."""

    def __init__(self, reservation: Mapping[str, Any]) -> None:
        self._reservation = reservation

    def describe_capacity_reservations(self, **_: Any) -> dict[str, Any]:
        return {"CapacityReservations": [self._reservation]}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, HELD._replace(zone="")),
        (
            {
                "AvailabilityZone": A,
                "ReservationType": "capacity-block",
                "EndDate": datetime(2026, 12, 1, tzinfo=UTC),
            },
            HELD._replace(zone=A, kind="capacity-block", ends=1_796_083_200.0),
        ),
    ],
)
def test_keys_of_a_reservation_may_be_missing(
    more: dict[str, Any], expected: ReservationRow
) -> None:
    shown = {
        "CapacityReservationId": HELD.id,
        "InstanceType": HELD.instance_type,
        "InstancePlatform": HELD.platform,
        "State": HELD.state,
        "TotalInstanceCount": HELD.machines,
    }
    clients = Clients(lambda _: Shown(shown | more))
    found = clients.call("DescribeCapacityReservations", {"page": None})
    assert found == ([expected], None)


async def test_only_the_type_and_zone_of_the_reservation_are_requested(
    settings: Ec2Settings,
) -> None:
    provider, _ = provider_of(Account([[OTHER], [HELD]]), settings)
    await provider.open()
    (one,) = provider.offerings(SKU, 0)
    assert one.key == f"east/g5.xlarge/{B}/on-demand/cr-1/near"
    assert one.dollars_per_hour > 1.0


@pytest.mark.case(
    "a capacity reservation reserves a number of machines: no more are requested",
    topic="EC2's API",
    source="EC2: Capacity Reservations",
)
async def test_the_size_of_a_reservation_is_its_quota(settings: Ec2Settings) -> None:
    account = Account([[OTHER, HELD]])
    provider, _ = provider_of(account, settings)
    await provider.open()
    (one,) = provider.offerings(SKU, 0)
    assert (one.quota_key, one.quota_units) == ("east/cr-1", 1)
    assert await provider.quotas() == {"east/cr-1": 3}
    account.pages = [[HELD._replace(machines=5)]]
    assert await provider.quotas() == {"east/cr-1": 5}


@pytest.mark.parametrize(
    "held",
    [
        HELD._replace(instance_type="g6.xlarge"),
        HELD._replace(zone="us-east-1f"),
        HELD._replace(platform="Windows with SQL Server"),
        HELD._replace(state="expired"),
    ],
)
async def test_a_reservation_that_does_not_fit_is_logged_once_and_not_requested(
    settings: Ec2Settings, held: ReservationRow
) -> None:
    account = Account([[held]])
    provider, _ = provider_of(account, settings)
    with capture_logs() as logs:
        await provider.open()
        assert provider.offerings(SKU, 0) == ()
        assert provider.offerings(SKU, 0) == ()
    (line,) = logs
    assert line["event"] == "capacity_reservation_unusable"
    assert {**line} | held._asdict() == line
    account.pages = [[HELD]]
    await provider.open()
    assert len(provider.offerings(SKU, 0)) == 1


async def test_windows_machines_need_a_reservation_of_windows(settings: Ec2Settings) -> None:
    account = Account([[HELD]])
    provider, _ = provider_of(account, settings, os=OperatingSystem.WINDOWS)
    await provider.open()
    assert provider.offerings(SKU, 0) == ()
    account.pages = [[HELD._replace(platform="Windows")]]
    await provider.open()
    assert len(provider.offerings(SKU, 0)) == 1


async def test_a_reservation_that_is_not_listed_leaves_the_refusal_to_ec2(
    settings: Ec2Settings,
) -> None:
    provider, _ = provider_of(Account([[OTHER]]), settings)
    await provider.open()
    assert [one.zone for one in provider.offerings(SKU, 0)] == [A, B]
    assert await provider.quotas() == {}


async def test_without_permission_the_refusal_is_left_to_ec2_and_logged_once(
    settings: Ec2Settings,
) -> None:
    denied = ProviderError(FailureClass.CONFIGURATION, "UnauthorizedOperation", "no")
    provider, _ = provider_of(Account([denied]), settings)
    with capture_logs() as logs:
        await provider.open()
        await provider.quotas()
    assert [one["event"] for one in logs] == ["capacity_reservations_not_read"]
    assert len(provider.offerings(SKU, 0)) == 2


async def test_an_outage_fails_the_reading_and_keeps_what_was_read(settings: Ec2Settings) -> None:
    account = Account([[HELD]])
    provider, _ = provider_of(account, settings)
    await provider.open()
    account.pages = [ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "slow")]
    with pytest.raises(ProviderError):
        await provider.quotas()
    assert [one.zone for one in provider.offerings(SKU, 0)] == [B]


async def test_reservations_are_not_read_where_no_option_names_one(settings: Ec2Settings) -> None:
    provider, api = provider_of(Account(), settings, None)
    await provider.open()
    await provider.quotas()
    assert "DescribeCapacityReservations" not in {operation for operation, _ in api.calls}


def row(settings: Ec2Settings, reservation: str = "") -> InstanceRow:
    plain = InstanceRow(
        "i-1", "running", "g5.xlarge", A, "on-demand", "", "ami-1", "t0", "", "id", SKU, "c"
    )
    return plain._replace(fleet=settings.fleet, reservation=reservation)


def test_a_machine_of_a_reservation_counts_there_and_not_against_the_vcpu_quota(
    settings: Ec2Settings,
) -> None:
    inside, outside = row(settings, reservation="cr-1"), row(settings)
    assert listed_machine(settings, inside).quota_usage == (("east/cr-1", 1),)
    assert listed_machine(settings, outside).quota_usage == (("east/on-demand/G and VT", 4),)
    # EC2 counts both, and the ledger only the second.
    assert used_by_others(settings.fleet, [inside, outside]) == {"on-demand/G and VT": 4}


ENDS = 1.9e9
SOLD = HELD._replace(kind="capacity-block", ends=ENDS)
BLOCK = (CapacityType.CAPACITY_BLOCK,)


def in_block(
    account: Account, settings: Ec2Settings, kinds: tuple[CapacityType, ...] = BLOCK
) -> Ec2Provider:
    option = option_of("g5.xlarge", capacity=kinds, capacity_reservation="cr-1")
    given = replace(settings, skus={SKU: replace(settings.skus[SKU], options={0: option})})
    api = ScriptedApi(account.answer)
    return Ec2Provider(given, RememberingTelemetry(), ManualClock(), api)


@pytest.mark.case(
    "a capacity block ends: 30 minutes before, EC2 terminates its machines",
    topic="EC2's API",
    source="EC2: Capacity Blocks",
)
async def test_a_block_is_prepaid_and_takes_no_job_in_its_last_90_minutes(
    settings: Ec2Settings,
) -> None:
    provider = in_block(Account([[SOLD]]), settings)
    await provider.open()
    (one,) = provider.offerings(SKU, 0)
    assert one.key == f"east/g5.xlarge/{B}/capacity-block/cr-1"
    assert (one.dollars_per_hour, one.until) == (0.0, ENDS - 90 * 60)


async def test_a_reservation_that_is_no_block_has_no_last_hour(settings: Ec2Settings) -> None:
    provider, _ = provider_of(Account([[HELD._replace(ends=ENDS)]]), settings)
    await provider.open()
    assert [one.until for one in provider.offerings(SKU, 0)] == [None]


@pytest.mark.parametrize(
    ("held", "kinds"), [(SOLD, (CapacityType.ON_DEMAND,)), (HELD, BLOCK)], ids=["block", "not"]
)
async def test_blocks_and_other_reservations_are_not_exchangeable(
    settings: Ec2Settings, held: ReservationRow, kinds: tuple[CapacityType, ...]
) -> None:
    provider = in_block(Account([[held]]), settings, kinds)
    await provider.open()
    assert provider.offerings(SKU, 0) == ()


async def test_nothing_is_requested_before_a_block_starts(settings: Ec2Settings) -> None:
    account = Account([[SOLD._replace(state="scheduled")]])
    provider = in_block(account, settings)
    await provider.open()
    assert await provider.quotas() == {"east/cr-1": 0}
    account.pages = [[SOLD]]
    assert await provider.quotas() == {"east/cr-1": 3}


def test_a_machine_in_a_block_counts_no_dollars_and_no_vcpus(settings: Ec2Settings) -> None:
    one = row(settings, reservation="cr-1")._replace(lifecycle="capacity-block")
    listed = listed_machine(settings, one)
    assert (listed.capacity_type, listed.dollars_per_hour) == (CapacityType.CAPACITY_BLOCK, 0.0)
    assert listed.quota_usage == (("east/cr-1", 1),)
    assert used_by_others(settings.fleet, [one]) == {}
