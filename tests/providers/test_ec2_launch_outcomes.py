"""The EC2 provider's outcomes of answers that moto cannot give: refusals, partial answers, silence."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.events import LaunchFailure
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.ec2.launching.requests import template_of
from autoscaler.providers.ec2.provider import Ec2Provider
from tests.providers.contract import MakeOrder, listed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.ec2_front import Ec2Front, Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARTIAL = """<CreateFleetResponse><requestId>r</requestId><fleetId>fleet-1</fleetId>
<fleetInstanceSet><item><instanceIds><item>i-00000000000000001</item></instanceIds>
<instanceType>g5.xlarge</instanceType><lifecycle>on-demand</lifecycle>
<launchTemplateAndOverrides><overrides><subnetId>{subnet}</subnetId>
<instanceType>g5.xlarge</instanceType></overrides></launchTemplateAndOverrides></item>
</fleetInstanceSet>
<errorSet>{errors}</errorSet></CreateFleetResponse>"""

ERROR = """<item><errorCode>{code}</errorCode><errorMessage>no</errorMessage>
<lifecycle>on-demand</lifecycle><launchTemplateAndOverrides><overrides>
<availabilityZone>us-east-1b</availabilityZone><instanceType>g4dn.xlarge</instanceType>
</overrides></launchTemplateAndOverrides></item>"""

NO_TEMPLATES = """<DescribeLaunchTemplatesResponse><requestId>r</requestId><launchTemplates/>
</DescribeLaunchTemplatesResponse>"""


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def _everything_scripted_is_played(front: Ec2Front) -> AsyncIterator[None]:
    yield
    assert front.unplayed() == []


@pytest.mark.case(
    "an instant fleet answers 200 with machines, and with an error for each override that gave "
    "fewer",
    topic="EC2's API",
    source="EC2: instant fleets",
)
async def test_a_part_of_a_request_can_fail_and_names_its_offering(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front, subnets: tuple[str, ...]
) -> None:
    codes = ("InsufficientInstanceCapacity", "VcpuLimitExceeded", "SomethingNew")
    errors = "".join(ERROR.format(code=code) for code in codes)
    front.script("CreateFleet", Reply(200, body=PARTIAL.format(subnet=subnets[2], errors=errors)))
    answer = await provider.launch(await provider.prepare(make_order(5, "t")))
    (machine,) = answer.launched
    assert (machine.provider_id, machine.zone) == ("i-00000000000000001", "us-east-1b")
    assert machine.image.startswith("ami-")
    assert [(one.failure, one.code, one.offering) for one in answer.failures] == [
        (failure, code, "east/g4dn.xlarge/us-east-1b/on-demand")
        for failure, code in zip(
            (FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.UNKNOWN), codes, strict=True
        )
    ]


@pytest.mark.case(
    "fewer machines than requested, without a reason",
    topic="EC2's API",
    source="EC2: instant fleets",
)
async def test_fewer_machines_without_an_error_are_an_unknown_failure(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front, subnets: tuple[str, ...]
) -> None:
    front.script("CreateFleet", Reply(200, body=PARTIAL.format(subnet=subnets[2], errors="")))
    answer = await provider.launch(await provider.prepare(make_order(5, "t")))
    assert [(one.failure, one.code, one.offering) for one in answer.failures] == [
        (FailureClass.UNKNOWN, "Unfulfilled", None)
    ]


@pytest.mark.case(
    "an image, subnet or permission is missing: an operator must act, and only that launch option"
    " stops",
    topic="EC2's API",
    source="EC2: error codes",
)
@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (Reply(503, "RequestLimitExceeded", "slow"), FailureClass.THROTTLED),
        (Reply(400, "VcpuLimitExceeded", "no"), FailureClass.QUOTA),
        (Reply(500, "InsufficientInstanceCapacity", "no"), FailureClass.CAPACITY),
        (Reply(403, "UnauthorizedOperation", "no"), FailureClass.CONFIGURATION),
        (Reply(400, "SomethingNew", "no"), FailureClass.UNKNOWN),
    ],
)
async def test_a_refused_request_has_a_failure_class_and_is_sent_once(
    provider: Ec2Provider,
    make_order: MakeOrder,
    front: Ec2Front,
    reply: Reply,
    failure: FailureClass,
) -> None:
    before = len(front.requests("CreateFleet"))
    front.script("CreateFleet", replace(reply, headers={"Retry-After": "7"}))
    with pytest.raises(ProviderError) as refusal:
        await provider.launch(await provider.prepare(make_order(1, "t")))
    assert (refusal.value.failure, refusal.value.code) == (failure, reply.code)
    assert refusal.value.retry_after == 7.0
    assert len(front.requests("CreateFleet")) == before + 1


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(500, "InternalError", "oh"), "InternalError"),
        (Reply(503, "SomethingNew", "oh"), "other"),
        (Reply(502, body="<html>Bad Gateway</html>"), "other"),
        (Reply(200, body="this is no XML"), "ResponseParserError"),
        (Reply(0), "ConnectionClosedError"),
        (Reply(400, "IdempotentParameterMismatch", "oh"), "IdempotentParameterMismatch"),
    ],
)
async def test_an_unusable_answer_leaves_the_outcome_unknown_and_is_not_repeated(
    provider: Ec2Provider,
    make_order: MakeOrder,
    front: Ec2Front,
    telemetry: RememberingTelemetry,
    reply: Reply,
    code: str,
) -> None:
    before = len(front.requests("CreateFleet"))
    front.script("CreateFleet", reply)
    request = await provider.prepare(make_order(1, "t"))
    with pytest.raises(OutcomeUnknownError):
        await provider.launch(request)
    assert len(front.requests("CreateFleet")) == before + 1
    assert telemetry.calls[-1] == ("CreateFleet", code)


async def test_repeating_the_same_request_returns_the_lost_answer(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front
) -> None:
    front.script("CreateFleet", Reply(0, after=True))
    request = await provider.prepare(make_order(2, "t"))
    with pytest.raises(OutcomeUnknownError):
        await provider.launch(request)
    answer = await provider.launch(request)
    assert {one.provider_id for one in answer.launched} == set(await listed(provider))
    sent = [one for one in front.requests("CreateFleet") if "-t" in one["ClientToken"]][-2:]
    assert sent[0] == sent[1]


@pytest.mark.case(
    "a pinned image was removed",
    topic="Images and disks",
    source="pytorch#136762",
)
@pytest.mark.parametrize(
    ("gone", "read_again"),
    [
        ("InvalidLaunchTemplateId.NotFound", []),
        ("InvalidAMIID.NotFound", ["DescribeImages"]),
    ],
)
async def test_a_deleted_template_or_image_is_looked_up_again(
    provider: Ec2Provider,
    make_order: MakeOrder,
    front: Ec2Front,
    telemetry: RememberingTelemetry,
    gone: str,
    read_again: list[str],
) -> None:
    front.script("CreateFleet", Reply(400, gone, "it is gone"))
    request = await provider.prepare(make_order(1, "t"))
    with pytest.raises(ProviderError):
        await provider.launch(request)
    telemetry.calls.clear()
    await provider.prepare(make_order(1, "u"))
    operations = [operation for operation, _ in telemetry.calls]
    assert [one for one in operations if one != "DescribeSubnets"] == [
        *read_again,
        "CreateLaunchTemplate",
        "DescribeLaunchTemplates",
    ]


@pytest.mark.case(
    "a launch template is deleted minutes after its creation: only its SKU waits, half a minute",
    topic="EC2's API",
    source="EC2: launch templates",
)
async def test_a_new_template_that_an_operator_deleted_is_created_again_at_once(
    provider: Ec2Provider, make_order: MakeOrder, client: Any
) -> None:
    request = await provider.prepare(make_order(1, "t"))
    client.delete_launch_template(LaunchTemplateId=template_of(request))
    with pytest.raises(ProviderError, match="InvalidLaunchTemplateId") as refusal:
        await provider.launch(request)
    # Throttling would stop every SKU of the provider.
    assert (refusal.value.failure, refusal.value.scope) == (FailureClass.UNKNOWN, None)
    again = await provider.prepare(make_order(1, "u"))
    assert template_of(again) != template_of(request)
    assert len((await provider.launch(again)).launched) == 1


@pytest.mark.case(
    "a launch template is NotFound right after its creation",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
async def test_a_new_template_that_is_not_visible_yet_stops_its_own_sku_only(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front
) -> None:
    front.script("CreateFleet", Reply(400, "InvalidLaunchTemplateId.NotFound", "where is it"))
    request = await provider.prepare(make_order(1, "t"))
    with pytest.raises(ProviderError, match="where is it") as refusal:
        await provider.launch(request)
    assert (refusal.value.failure, refusal.value.scope) == (FailureClass.UNKNOWN, None)
    # Its name exists, but the list does not show it yet.
    front.script("DescribeLaunchTemplates", Reply(200, body=NO_TEMPLATES))
    with pytest.raises(ProviderError, match="does not show the launch template") as refusal:
        await provider.prepare(make_order(1, "u"))
    assert (refusal.value.failure, refusal.value.scope) == (FailureClass.UNKNOWN, None)
    again = await provider.prepare(make_order(1, "v"))
    assert template_of(again) == template_of(request)
    assert len((await provider.launch(again)).launched) == 1


def zone_of(request: str, subnet: str) -> str | None:
    overrides = json.loads(request)["LaunchTemplateConfigs"][0]["Overrides"]
    return next((one["AvailabilityZone"] for one in overrides if one["SubnetId"] == subnet), None)


@pytest.mark.case(
    "a subnet without free addresses: its zone is on hold, and another subnet of the zone is used",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole call", "one override"])
async def test_a_full_subnet_puts_its_zone_on_hold_and_another_subnet_is_used_next(
    provider: Ec2Provider,
    make_order: MakeOrder,
    front: Ec2Front,
    subnets: tuple[str, ...],
    whole: bool,
) -> None:
    code, text = "InsufficientFreeAddressesInSubnet", f"not enough in subnet '{subnets[1]}'."
    request = await provider.prepare(make_order(2, "t"))
    assert zone_of(request, subnets[1]) == "us-east-1a"
    error = ERROR.format(code=code).replace("us-east-1b", "us-east-1a")
    body = PARTIAL.format(subnet=subnets[2], errors=error)
    front.script("CreateFleet", Reply(400, code, text) if whole else Reply(200, body=body))
    failure: ProviderError | LaunchFailure
    if whole:
        with pytest.raises(ProviderError, match=code) as refusal:
            await provider.launch(request)
        failure = refusal.value
    else:
        (failure,) = (await provider.launch(request)).failures
    assert (failure.failure, failure.scope) == (FailureClass.QUOTA, FailureScope.ZONE)
    assert failure.offering is not None
    assert failure.offering.split("/")[2] == "us-east-1a"
    following = await provider.prepare(make_order(2, "u"))
    assert zone_of(following, subnets[1]) is None
    assert zone_of(following, subnets[0]) == "us-east-1a"


@pytest.mark.case(
    "an error names a pool that the call did not request",
    topic="EC2's API",
    source="EC2: CreateFleetError",
)
async def test_an_answer_about_an_unrequested_pool_loses_no_machine(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front, subnets: tuple[str, ...]
) -> None:
    request = await provider.prepare(make_order(3, "t"))
    code = "InsufficientFreeAddressesInSubnet"
    strange = ERROR.format(code=code).replace("us-east-1b", "use1-az9")
    other = ERROR.format(code=code).replace("us-east-1b", "us-east-1a").replace("g4dn", "m7i")
    body = PARTIAL.format(subnet=subnets[2], errors=strange + other)
    front.script("CreateFleet", Reply(200, body=body))
    answer = await provider.launch(request)
    assert [one.provider_id for one in answer.launched] == ["i-00000000000000001"]
    assert [(one.code, one.scope) for one in answer.failures] == [(code, FailureScope.ZONE)] * 2
    following = await provider.prepare(make_order(2, "u"))
    assert zone_of(following, subnets[0]) == "us-east-1a"  # in place of the full one there


@pytest.mark.case(
    "spot's service-linked role is missing: on-demand continues",
    topic="EC2's API",
    source="Karpenter#7998; Karpenter#3413",
)
async def test_a_missing_spot_role_affects_only_spot(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front
) -> None:
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    front.script("CreateFleet", Reply(403, code, "no role"))
    with pytest.raises(ProviderError) as refusal:
        await provider.launch(await provider.prepare(make_order(1, "t")))
    assert refusal.value.failure is FailureClass.CONFIGURATION
    assert refusal.value.scope is FailureScope.CAPACITY_TYPE


@pytest.mark.case(
    "RequestLimitExceeded: the bucket is empty, and delays grow",
    topic="EC2's API",
    source="EC2: request throttling",
)
async def test_a_throttled_call_makes_the_next_one_wait_longer_each_time(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front, clock: ManualClock
) -> None:
    request = await provider.prepare(make_order(1, "t"))
    front.script("CreateFleet", *(Reply(503, "RequestLimitExceeded", "slow") for _ in range(3)))
    for _ in range(3):
        with pytest.raises(ProviderError):
            await provider.launch(request)
    await provider.launch(request)
    assert clock.slept == pytest.approx([1.0, 2.0, 4.0])


@pytest.mark.case(
    "the controller reads all pages of a list of machines",
    topic="EC2's API",
    source="EC2: DescribeInstances",
)
async def test_a_listing_that_breaks_off_is_incomplete(
    provider: Ec2Provider, front: Ec2Front
) -> None:
    front.script("DescribeInstances", Reply(503, "RequestLimitExceeded", "slow"))
    with pytest.raises(ProviderError) as refusal:
        await listed(provider)
    assert refusal.value.failure is FailureClass.THROTTLED
