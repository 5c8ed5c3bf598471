"""The EC2 provider against moto, and against answers that moto cannot give."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from autoscaler.controller.ports.provider import ProofRefusedError, ProviderError
from autoscaler.model.catalogue import Architecture, CapacityType
from autoscaler.model.identifiers import InstallationId, Installations, ProviderMachineId, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2 import listing
from autoscaler.providers.ec2.instance_types import InstanceTypeError
from autoscaler.providers.ec2.launching.templates import FRESH_FOR
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, NamedImage
from autoscaler.providers.ec2.worker.channel import WorkerChannel
from tests.providers.conftest import ACCOUNT, REGION, SKU, Borrowed
from tests.providers.contract import MakeOrder, listed
from tests.providers.documents import Signer, document, signed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.ec2_keys import option_of, with_keys

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_account_and_the_zones_are_read_when_it_opens(
    provider: Ec2Provider, settings: Ec2Settings, subnets: tuple[str, ...]
) -> None:
    kinds = (CapacityType.SPOT, CapacityType.ON_DEMAND)
    options = {0: option_of("g5.xlarge", capacity=kinds), 1: option_of("m7g.xlarge")}
    sku = replace(settings.skus[SKU], options=options)
    changed = provider.with_skus_of(replace(settings, skus={SKU: sku}))
    found = changed.offerings(SKU, 0)
    assert [(one.zone, one.capacity_type) for one in found] == [
        ("us-east-1a", "spot"),
        ("us-east-1b", "spot"),
        ("us-east-1a", "on-demand"),
        ("us-east-1b", "on-demand"),
    ]
    with pytest.raises(InstanceTypeError, match=r"m7g\.xlarge is not x64"):
        changed.offerings(SKU, 1)


async def test_a_document_is_valid_only_for_the_account_that_sts_names(
    settings: Ec2Settings, worker: WorkerChannel, tmp_path: Path
) -> None:
    signer = Signer(serial=70)
    pem = tmp_path / "lab.pem"
    pem.write_bytes(signer.pem)
    pinning = with_keys(settings, identity_certificates=(str(pem),))
    provider = Ec2Provider(pinning, RememberingTelemetry(), ManualClock(), Borrowed(worker))
    assert provider.accepts_documents
    ours, theirs = document(accountId=ACCOUNT), document(accountId="999999999999")
    with pytest.raises(ProofRefusedError, match="account: the provider has not been opened"):
        await provider.verify(signed(ours, signer.signer_info(ours)))
    await provider.open()
    proven = await provider.verify(signed(ours, signer.signer_info(ours)))
    assert proven.image.startswith("ami-")
    with pytest.raises(ProofRefusedError, match="account"):
        await provider.verify(signed(theirs, signer.signer_info(theirs)))


@pytest.mark.case(
    "two subnets of one zone are duplicate instance pools",
    topic="EC2's API",
    source="GAR#5297; GAR#2904",
)
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


@pytest.mark.case(
    "a newer image appears while the controller runs",
    topic="Images and disks",
    source="EC2: DescribeImages",
)
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


async def test_a_template_of_an_earlier_process_is_used(
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


@pytest.mark.case(
    "an image, subnet or permission is missing: an operator must act, and only that launch option"
    " stops",
    topic="EC2's API",
    source="EC2: error codes",
)
@pytest.mark.case(
    "a pinned image was removed",
    topic="Images and disks",
    source="pytorch#136762",
)
async def test_an_image_that_does_not_exist_is_a_configuration_error(
    settings: Ec2Settings, worker: WorkerChannel, make_order: MakeOrder
) -> None:
    known = settings.skus[SKU]
    for sku, code in (
        (replace(known, image=NamedImage(name="no-such-*")), "ImageNotFound"),
        (with_keys(known, arch=Architecture.ARM64), "ImageArchitecture"),
    ):
        changed = replace(settings, skus={SKU: sku})
        provider = Ec2Provider(changed, RememberingTelemetry(), ManualClock(), Borrowed(worker))
        with pytest.raises(ProviderError) as refusal:
            await provider.prepare(make_order(1, "t"))
        assert (refusal.value.failure, refusal.value.code) == (FailureClass.CONFIGURATION, code)


async def test_an_order_for_a_sku_of_another_provider_is_a_configuration_error(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    with pytest.raises(ProviderError, match="other is not a SKU on EC2"):
        await provider.prepare(replace(make_order(1, "t"), sku=SkuName("other")))


@pytest.mark.case(
    "the controller reads all pages of a list of machines",
    topic="EC2's API",
    source="EC2: DescribeInstances",
)
async def test_machines_are_listed_page_by_page_with_price_and_quota(
    provider: Ec2Provider, make_order: MakeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 5)
    for number in range(7):
        await provider.launch(await provider.prepare(make_order(1, f"t{number}")))
    pages = [page async for page in provider.machines()]
    assert [len(page) for page in pages] == [5, 2]
    one = pages[0][0]
    assert one.dollars_per_hour == 1.006
    assert one.quota_usage == (("east/on-demand/G and VT", 4),)
    assert one.installation == "f00dface"
    assert one.image.startswith("ami-")
    assert one.launch_time.endswith("Z")
    assert len(one.launch_time) == len("2026-09-03T21:25:44Z")


async def test_other_installations_of_the_fleet_are_listed_and_other_fleets_are_not(
    settings: Ec2Settings, worker: WorkerChannel, provider: Ec2Provider, make_order: MakeOrder
) -> None:
    other = replace(settings, installations=Installations(InstallationId("other")))
    stranger = replace(settings, fleet=settings.fleet + "x")
    for number, one in enumerate((other, stranger)):
        elsewhere = Ec2Provider(one, RememberingTelemetry(), ManualClock(), Borrowed(worker))
        await elsewhere.launch(await elsewhere.prepare(make_order(1, f"t{number}")))
    assert [one.installation for one in (await listed(provider)).values()] == ["other"]


async def test_a_terminated_machine_shows_its_reason_and_uses_no_quota(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    answer = await provider.launch(await provider.prepare(make_order(1, "t")))
    await provider.terminate([answer.launched[0].provider_id])
    (one,) = (await listed(provider)).values()
    assert one.terminated
    assert one.reason.startswith("Client.UserInitiatedShutdown")
    assert one.quota_usage == ()


async def test_unknown_machines_do_not_stop_the_termination_of_known_ones(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    answer = await provider.launch(await provider.prepare(make_order(1, "t")))
    unknown = ProviderMachineId("i-0123456789abcdef0")
    assert await provider.terminate([unknown, answer.launched[0].provider_id]) == {}
    assert [one.terminated for one in (await listed(provider)).values()] == [True]


async def test_a_spot_request_launches_spot_machines(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    order = make_order(2, "t")
    offerings = tuple(key.replace("on-demand", "spot") for key in order.offerings)
    spot = replace(order, capacity_type=CapacityType.SPOT, offerings=offerings)
    answer = await provider.launch(await provider.prepare(spot))
    assert {one.capacity_type for one in answer.launched} == {CapacityType.SPOT}
    (machine, _) = (await listed(provider)).values()
    assert machine.capacity_type is CapacityType.SPOT
    assert machine.quota_usage == (("east/spot/G and VT", 4),)


async def test_a_provider_with_other_skus_shares_what_was_read_and_leaves_the_first_as_it_is(
    provider: Ec2Provider,
    settings: Ec2Settings,
    make_order: MakeOrder,
    telemetry: RememberingTelemetry,
) -> None:
    """As a reload and `plan --against` make it."""
    await provider.prepare(make_order(1, "before"))
    known = settings.skus[SKU]
    wider = replace(
        known,
        options={0: known.options[0], 1: option_of("g6.xlarge", capacity=(CapacityType.SPOT,))},
    )
    changed = provider.with_skus_of(replace(settings, skus={SKU: wider, SkuName("new"): known}))
    before = list(telemetry.calls)
    assert {one.instance_type for one in changed.offerings(SKU, 1)} == {"g6.xlarge"}
    assert changed.offerings(SkuName("new"), 0) == provider.offerings(SKU, 0)
    with pytest.raises(KeyError):
        provider.offerings(SkuName("new"), 0)
    assert telemetry.calls == before
    await changed.open()
    request = json.loads(await changed.prepare(replace(make_order(1, "after"), option=1)))
    assert request["LaunchTemplateConfigs"]
    changed.adopt(InstallationId("1bad1bad"))
    await changed.prepare(make_order(1, "adopted"))


async def test_a_template_of_a_removed_sku_is_needed_no_more(
    provider: Ec2Provider, settings: Ec2Settings, make_order: MakeOrder, clock: ManualClock
) -> None:
    body = json.loads(await provider.prepare(make_order(1, "t")))
    template = body["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["LaunchTemplateId"]
    clock.time += 7200.0
    assert provider._resources.needs_template(template, 3600.0)
    changed = provider.with_skus_of(replace(settings, skus={}))
    await changed.open()
    assert not provider._resources.needs_template(template, 3600.0)
