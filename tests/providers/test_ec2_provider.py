"""The EC2 provider against moto, and against answers that moto cannot give."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import boto3
import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import InstallationId, ProviderMachineId, SkuName
from autoscaler.providers.ec2 import provider as provider_module
from autoscaler.providers.ec2.channel import WorkerChannel
from autoscaler.providers.ec2.instance_types import InstanceTypeError
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.resources import FRESH_FOR
from autoscaler.providers.ec2.settings import Ec2Settings
from tests.providers.conftest import ACCOUNT, REGION, SKU, Borrowed
from tests.providers.contract import MakeOrder, listed
from tests.providers.documents import Signer, document, signed
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


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def _everything_scripted_is_played(front: Ec2Front) -> AsyncIterator[None]:
    yield
    assert front.unplayed() == []


async def test_the_account_and_the_zones_are_read_when_it_opens(
    provider: Ec2Provider, subnets: tuple[str, ...]
) -> None:
    found = provider.offerings(
        ["g5.xlarge"],
        [CapacityType.SPOT, CapacityType.ON_DEMAND],
        OperatingSystem.LINUX,
        Architecture.X64,
    )
    assert [(one.zone, one.capacity_type) for one in found] == [
        ("us-east-1a", "spot"),
        ("us-east-1b", "spot"),
        ("us-east-1a", "on-demand"),
        ("us-east-1b", "on-demand"),
    ]
    with pytest.raises(InstanceTypeError, match=r"m7g\.xlarge is not x64"):
        provider.offerings(
            ["m7g.xlarge"], [CapacityType.SPOT], OperatingSystem.LINUX, Architecture.X64
        )


async def test_a_document_counts_only_for_the_account_that_sts_names(
    settings: Ec2Settings, worker: WorkerChannel, tmp_path: object
) -> None:
    signer = Signer(serial=70)
    provider = Ec2Provider(settings, RememberingTelemetry(), ManualClock(), Borrowed(worker))
    content = document(accountId=ACCOUNT)
    assert provider.believes_documents
    with pytest.raises(Exception, match="account"):
        provider.verify(signed(content, signer.signer_info(content)))
    await provider.open()
    with pytest.raises(Exception, match="certificate"):
        provider.verify(signed(content, signer.signer_info(content)))


async def test_the_request_names_one_subnet_a_zone_and_a_template_of_its_own(
    provider: Ec2Provider, make_order: MakeOrder, subnets: tuple[str, ...], moto_url: str
) -> None:
    body = json.loads(await provider.prepare(make_order(3, "t")))
    (config,) = body["LaunchTemplateConfigs"]
    assert {one["SubnetId"] for one in config["Overrides"]} == {subnets[1], subnets[2]}
    client = boto3.client("ec2", region_name=REGION, endpoint_url=moto_url)
    template = config["LaunchTemplateSpecification"]
    (version,) = client.describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"], Versions=[template["Version"]]
    )["LaunchTemplateVersions"]
    client.close()
    data = version["LaunchTemplateData"]
    assert data["ImageId"].startswith("ami-")
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 100


async def test_templates_and_images_are_looked_up_once_and_again_after_a_while(
    provider: Ec2Provider,
    make_order: MakeOrder,
    clock: ManualClock,
    telemetry: RememberingTelemetry,
) -> None:
    await asyncio.gather(*(provider.prepare(make_order(1, str(n))) for n in range(5)))
    operations = [operation for operation, _ in telemetry.calls]
    assert operations.count("DescribeImages") == operations.count("CreateLaunchTemplate") == 1
    clock.time += FRESH_FOR + 1
    await provider.prepare(make_order(1, "later"))
    operations = [operation for operation, _ in telemetry.calls]
    assert operations.count("DescribeImages") == 2
    assert operations.count("CreateLaunchTemplate") == 1
    assert operations.count("DescribeSubnets") == 2


async def test_a_template_that_an_earlier_process_made_is_used(
    settings: Ec2Settings, worker: WorkerChannel, make_order: MakeOrder
) -> None:
    texts = []
    outcomes = []
    for _ in range(2):
        telemetry = RememberingTelemetry()
        provider = Ec2Provider(settings, telemetry, ManualClock(), Borrowed(worker))
        texts.append(await provider.prepare(make_order(1, "t")))
        outcomes += [outcome for name, outcome in telemetry.calls if "LaunchTemplate" in name]
    assert texts[0] == texts[1]
    assert outcomes == ["ok", "InvalidLaunchTemplateName", "ok"]


async def test_an_image_that_does_not_exist_is_a_configuration_error(
    settings: Ec2Settings, worker: WorkerChannel, make_order: MakeOrder
) -> None:
    for changes, code in (
        ({"image_name": "no-such-*"}, "ImageNotFound"),
        ({"arch": Architecture.ARM64}, "ImageArchitecture"),
    ):
        sku = replace(settings.skus[SKU], **changes)
        changed = replace(settings, skus={SKU: sku})
        provider = Ec2Provider(changed, RememberingTelemetry(), ManualClock(), Borrowed(worker))
        with pytest.raises(ProviderError) as refusal:
            await provider.prepare(make_order(1, "t"))
        assert (refusal.value.failure, refusal.value.code) == (FailureClass.CONFIGURATION, code)


async def test_an_order_for_a_sku_that_is_not_on_ec2_is_a_configuration_error(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    with pytest.raises(ProviderError, match="other is not for EC2"):
        await provider.prepare(replace(make_order(1, "t"), sku=SkuName("other")))


async def test_machines_are_listed_page_by_page_with_price_and_quota(
    provider: Ec2Provider, make_order: MakeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "PAGE", 5)
    for number in range(7):
        await provider.launch(await provider.prepare(make_order(1, f"t{number}")))
    pages = [page async for page in provider.machines()]
    assert [len(page) for page in pages] == [5, 2]
    one = pages[0][0]
    assert one.dollars_per_hour == 1.006
    assert one.holds == (("east/on-demand/G and VT", 4),)
    assert one.installation == "f00dface"
    assert one.image.startswith("ami-")
    assert one.launch_time.endswith("Z")
    assert len(one.launch_time) == len("2026-09-03T21:25:44Z")


async def test_other_installations_of_the_fleet_are_listed_and_other_fleets_are_not(
    settings: Ec2Settings, worker: WorkerChannel, provider: Ec2Provider, make_order: MakeOrder
) -> None:
    other = replace(settings, installation=InstallationId("other"))
    stranger = replace(settings, fleet=settings.fleet + "x")
    for number, one in enumerate((other, stranger)):
        elsewhere = Ec2Provider(one, RememberingTelemetry(), ManualClock(), Borrowed(worker))
        await elsewhere.launch(await elsewhere.prepare(make_order(1, f"t{number}")))
    assert [one.installation for one in (await listed(provider)).values()] == ["other"]


async def test_a_terminated_machine_says_why_and_holds_nothing(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    answer = await provider.launch(await provider.prepare(make_order(1, "t")))
    await provider.end([answer.launched[0].provider_id])
    (one,) = (await listed(provider)).values()
    assert one.terminated
    assert one.reason.startswith("Client.UserInitiatedShutdown")
    assert one.holds == ()


async def test_unknown_machines_shield_nobody_from_ending(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    answer = await provider.launch(await provider.prepare(make_order(1, "t")))
    unknown = ProviderMachineId("i-0123456789abcdef0")
    assert await provider.end([unknown, answer.launched[0].provider_id]) == {}
    assert [one.terminated for one in (await listed(provider)).values()] == [True]


async def test_a_spot_call_gives_spot_machines(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    order = make_order(2, "t")
    offerings = tuple(key.replace("on-demand", "spot") for key in order.offerings)
    spot = replace(order, capacity_type=CapacityType.SPOT, offerings=offerings)
    answer = await provider.launch(await provider.prepare(spot))
    assert {one.capacity_type for one in answer.launched} == {CapacityType.SPOT}
    (machine, _) = (await listed(provider)).values()
    assert machine.capacity_type is CapacityType.SPOT
    assert machine.holds == (("east/spot/G and VT", 4),)


async def test_part_of_a_call_can_fail_and_says_which_offering(
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


async def test_fewer_machines_without_a_reason_is_an_unknown_failure(
    provider: Ec2Provider, make_order: MakeOrder, front: Ec2Front, subnets: tuple[str, ...]
) -> None:
    front.script("CreateFleet", Reply(200, body=PARTIAL.format(subnet=subnets[2], errors="")))
    answer = await provider.launch(await provider.prepare(make_order(5, "t")))
    assert [(one.failure, one.code, one.offering) for one in answer.failures] == [
        (FailureClass.UNKNOWN, "Unfulfilled", None)
    ]


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
async def test_a_refused_call_is_classed_and_sent_once(
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
        (Reply(503, "SomethingNew", "oh"), "unlisted"),
        (Reply(502, body="<html>Bad Gateway</html>"), "unlisted"),
        (Reply(200, body="this is no XML"), "ResponseParserError"),
        (Reply(0), "ConnectionClosedError"),
        (Reply(400, "IdempotentParameterMismatch", "oh"), "IdempotentParameterMismatch"),
    ],
)
async def test_an_answer_that_says_nothing_leaves_the_outcome_unknown_and_is_sent_once(
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


async def test_a_lost_answer_is_found_again_by_repeating_the_same_text(
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


@pytest.mark.parametrize("gone", ["InvalidLaunchTemplateId.NotFound", "InvalidAMIID.NotFound"])
async def test_a_template_or_image_that_is_gone_is_looked_up_again(
    provider: Ec2Provider,
    make_order: MakeOrder,
    front: Ec2Front,
    telemetry: RememberingTelemetry,
    gone: str,
) -> None:
    front.script("CreateFleet", Reply(400, gone, "it is gone"))
    with pytest.raises(ProviderError):
        await provider.launch(await provider.prepare(make_order(1, "t")))
    telemetry.calls.clear()
    await provider.prepare(make_order(1, "u"))
    assert [operation for operation, _ in telemetry.calls] == [
        "DescribeImages",
        "CreateLaunchTemplate",
        "DescribeLaunchTemplates",
        "DescribeSubnets",
    ]


async def test_a_list_that_breaks_off_is_no_complete_list(
    provider: Ec2Provider, front: Ec2Front
) -> None:
    front.script("DescribeInstances", Reply(503, "RequestLimitExceeded", "slow"))
    with pytest.raises(ProviderError) as refusal:
        await listed(provider)
    assert refusal.value.failure is FailureClass.THROTTLED
