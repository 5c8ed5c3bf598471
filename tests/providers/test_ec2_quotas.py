"""The fleet's quotas: Service Quotas or the operator's figure, minus machines of others."""

import json
from dataclasses import replace

import boto3
import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.prices_and_quotas import QuotaSource, Reading
from autoscaler.providers.ec2.instance_types import instance_types, quota
from autoscaler.providers.ec2.prices.quotas import (
    QUOTA_CODES,
    AccountLimits,
    available_quotas,
    used_by_others,
)
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.channel import WorkerChannel
from autoscaler.providers.ec2.worker.rows import InstanceRow, QuotaRow
from tests.providers.conftest import REGION, Borrowed
from tests.providers.contract import MakeOrder
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi
from tests.providers.ec2_front import Ec2Front, Reply
from tests.providers.ec2_keys import with_keys

QUOTA_ONE = "L-DB2E81BA"
SPOT_G = "L-3819A6DF"
LINUX = OperatingSystem.LINUX


def row(instance_type: str, lifecycle: str = "on-demand", **fields: object) -> InstanceRow:
    plain = InstanceRow(
        "i-1", "running", instance_type, "a", lifecycle, "", "ami-1", "", "", "", "", ""
    )
    return plain._replace(**fields)  # type: ignore[arg-type]


def test_every_family_has_quota_codes_for_on_demand_and_spot() -> None:
    names = set(QUOTA_CODES.values())
    assert {quota(name, CapacityType.ON_DEMAND) for name in instance_types()} <= names
    spot = {quota(name, CapacityType.SPOT) for name in instance_types()}
    assert spot - names == {"spot/HPC", "spot/High memory", "spot/P6"}
    assert len(names) == len(QUOTA_CODES)


class Account:
    """What Service Quotas answers, until the test says otherwise, or why it does not."""

    def __init__(self, settings: Ec2Settings, *rows: QuotaRow) -> None:
        self.rows = list(rows)
        self.refusal: Exception | None = None
        self.clock = ManualClock()
        self.limits = AccountLimits(settings, ScriptedApi(self.answer), self.clock)

    def answer(self, operation: str, arguments: object) -> tuple[list[QuotaRow], None]:
        if self.refusal is not None:
            raise self.refusal
        return self.rows, None

    def sources(self) -> dict[QuotaSource, int]:
        return {source: number for source, number in self.limits.sources().items() if number}


@pytest.fixture
def offered(settings: Ec2Settings) -> Ec2Settings:
    """Two G types on demand, one of them on spot, and a P6 on spot."""
    on_demand = {("g5.xlarge", LINUX), ("g6.xlarge", LINUX), ("p6-b200.48xlarge", LINUX)}
    spot = {("g5.xlarge", LINUX), ("p6-b200.48xlarge", LINUX)}
    types = {CapacityType.ON_DEMAND: frozenset(on_demand), CapacityType.SPOT: frozenset(spot)}
    return replace(settings, offered=types)


@pytest.mark.case(
    "P5 on spot has a quota of its own; AWS names none for P6",
    topic="EC2's API",
    source="EC2: instance quotas",
)
async def test_p5_on_spot_is_not_capped_by_the_quota_of_older_p_types(
    settings: Ec2Settings,
) -> None:
    applied = [QuotaRow("L-7212CCBC", 0.0), QuotaRow("L-C4BD4855", 1152.0)]
    known = await Account(settings, *applied).limits.read()
    assert known[quota("p5.48xlarge", CapacityType.SPOT)] == 1152
    assert known[quota("p4d.24xlarge", CapacityType.SPOT)] == 0
    assert quota("p6-b200.48xlarge", CapacityType.SPOT) not in known


async def test_the_operators_quota_takes_precedence_over_service_quotas(
    settings: Ec2Settings,
) -> None:
    applied = [QuotaRow(QUOTA_ONE, 64.0), QuotaRow("L-34B43A08", 5.0), QuotaRow("L-0EA8095F", 1)]
    given = with_keys(settings, quotas={"on-demand/G and VT": 100, "spot/P": 0})
    assert await Account(given, *applied).limits.read() == {
        "on-demand/G and VT": 100,
        "spot/Standard": 5,
        "spot/P": 0,
    }


@pytest.mark.case(
    "Service Quotas refuses or does not answer after a restart: the last values are used",
    topic="EC2's API",
    source="Service Quotas: ListServiceQuotas",
)
async def test_after_a_restart_without_permission_the_stored_quotas_apply_with_their_age(
    offered: Ec2Settings,
) -> None:
    first = Account(offered, QuotaRow(QUOTA_ONE, 64.0), QuotaRow(SPOT_G, 32.0))
    assert first.sources() == {QuotaSource.UNKNOWN: 4}
    await first.limits.read()
    assert first.sources() == {QuotaSource.API: 2, QuotaSource.UNKNOWN: 2}
    kept = first.limits.readings()

    again = Account(offered)
    again.limits.use_kept(kept)
    again.clock.time += 86400.0
    again.refusal = ProviderError(FailureClass.CONFIGURATION, "AccessDeniedException", "not you")
    assert await again.limits.read() == {"on-demand/G and VT": 64, "spot/G and VT": 32}
    assert "AccessDeniedException" in str(again.limits.problem)
    assert again.sources() == {QuotaSource.CACHE: 2, QuotaSource.UNKNOWN: 2}
    assert again.limits.readings() == kept, "of the day when they were read"

    again.refusal = None
    again.rows = [QuotaRow(QUOTA_ONE, 96.0)]
    assert await again.limits.read() == {"on-demand/G and VT": 96, "spot/G and VT": 32}
    assert again.limits.problem is None
    assert again.sources() == {QuotaSource.API: 1, QuotaSource.CACHE: 1, QuotaSource.UNKNOWN: 2}


async def test_the_operators_quota_applies_before_stored_ones(offered: Ec2Settings) -> None:
    account = Account(with_keys(offered, quotas={"on-demand/G and VT": 8}))
    account.limits.use_kept([Reading("on-demand/G and VT", 64.0, 5.0)])
    account.refusal = OutcomeUnknownError("time-out")
    assert await account.limits.read() == {"on-demand/G and VT": 8}
    assert account.sources() == {QuotaSource.CONFIGURED: 1, QuotaSource.UNKNOWN: 3}


async def test_stored_quotas_of_several_reads_are_combined(offered: Ec2Settings) -> None:
    account = Account(offered)
    readings = [Reading(name, 8.0, 1.0) for name in ("on-demand/G and VT", "spot/G and VT")]
    for one in readings:
        account.limits.use_kept([one])
    assert account.limits.readings() == tuple(readings)


def test_usage_of_others_is_counted_by_family_and_capacity_type() -> None:
    rows = [
        row("g5.xlarge"),
        row("g4dn.2xlarge"),
        row("g5.xlarge", "spot", fleet="other"),
        row("g5.xlarge", fleet="ci"),
        row("m7i.xlarge", tenancy="dedicated"),
        row("m7i.xlarge", tenancy="host"),
        row("p5.48xlarge", "capacity-block"),
        row("g9.huge", vcpus=10),
        row("mac2.metal"),
    ]
    assert used_by_others("ci", rows) == {
        "on-demand/G and VT": 4 + 8 + 10,
        "spot/G and VT": 4,
        "on-demand/Standard": 4,
    }


def test_the_remaining_quota_is_never_negative() -> None:
    quotas = {"spot/P": 8, "on-demand/P": 8, "spot/F": 8}
    assert available_quotas(ProviderName("east"), quotas, {"spot/P": 5, "on-demand/P": 9}) == {
        "east/spot/P": 3,
        "east/on-demand/P": 0,
        "east/spot/F": 8,
    }


def quotas_page(*values: tuple[str, float], following: str | None = None) -> Reply:
    rows = [{"QuotaCode": code, "Value": value} for code, value in values]
    return Reply(200, body=json.dumps({"Quotas": rows, "NextToken": following}))


@pytest.mark.case(
    "vCPU quotas by family, minus the usage of other machines in the account",
    topic="EC2's API",
    source="EC2: on-demand quotas; EC2: spot quotas",
)
@pytest.mark.asyncio(loop_scope="session")
async def test_quotas_are_read_in_pages_minus_the_usage_of_others(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front, moto_url: str
) -> None:
    client = boto3.client("ec2", region_name=REGION, endpoint_url=moto_url)
    image = client.describe_images()["Images"][0]["ImageId"]
    before = [quotas_page((QUOTA_ONE, 5000.0)), quotas_page((QUOTA_ONE, 5000.0))]
    front.script("ListServiceQuotas", before[0])
    first = (await provider.quotas())["east/on-demand/G and VT"]
    started = client.run_instances(
        ImageId=image, InstanceType="g5.2xlarge", MinCount=2, MaxCount=2
    )["Instances"]
    await provider.launch(await provider.prepare(make_order(3, "ours")))
    front.script(
        "ListServiceQuotas",
        quotas_page(("L-34B43A08", 7.0), following="more"),
        quotas_page((QUOTA_ONE, 5000.0)),
    )
    found = await provider.quotas()
    client.terminate_instances(InstanceIds=[one["InstanceId"] for one in started])
    client.close()
    assert found["east/on-demand/G and VT"] == first - 16
    assert found["east/spot/Standard"] == 7
    assert front.requests("ListServiceQuotas")[-1]["NextToken"] == "more"


@pytest.mark.case(
    "no permission to read Service Quotas",
    topic="EC2's API",
    source="Service Quotas: ListServiceQuotas",
)
@pytest.mark.asyncio(loop_scope="session")
async def test_without_permission_to_read_quotas_the_operators_apply(
    settings: Ec2Settings, worker: WorkerChannel, front: Ec2Front
) -> None:
    given = with_keys(settings, quotas={"spot/F": 12})
    provider = Ec2Provider(given, RememberingTelemetry(), ManualClock(), Borrowed(worker))
    front.script("ListServiceQuotas", Reply(400, "AccessDeniedException", "not you"))
    assert await provider.quotas() == {"east/spot/F": 12}


@pytest.mark.asyncio(loop_scope="session")
async def test_throttled_quota_reads_do_not_mean_missing_quotas(
    provider: Ec2Provider, front: Ec2Front
) -> None:
    slow = Reply(400, "TooManyRequestsException", "slow")
    front.script("ListServiceQuotas", quotas_page((QUOTA_ONE, 5000.0)), slow)
    known = await provider.quotas()
    assert set(known) == {"east/on-demand/G and VT"}
    assert await provider.quotas() == known
    assert isinstance(provider.limits.problem, ProviderError)
    assert provider.limits.problem.failure is FailureClass.THROTTLED


@pytest.mark.case(
    "Service Quotas lists a quota with an error in place of its value",
    topic="EC2's API",
    source="Service Quotas: ServiceQuota",
)
@pytest.mark.asyncio(loop_scope="session")
async def test_a_quota_that_aws_does_not_return_does_not_hide_the_others(
    provider: Ec2Provider, front: Ec2Front
) -> None:
    broken = {"ErrorCode": "SERVICE_QUOTA_NOT_AVAILABLE_ERROR", "ErrorMessage": "none"}
    rows = [{"QuotaCode": SPOT_G, "ErrorReason": broken}, {"QuotaCode": QUOTA_ONE, "Value": 5000.0}]
    front.script("ListServiceQuotas", Reply(200, body=json.dumps({"Quotas": rows})))
    assert set(await provider.quotas()) == {"east/on-demand/G and VT"}
    assert provider.limits.problem is None
