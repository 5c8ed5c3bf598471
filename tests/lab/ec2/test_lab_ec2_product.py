"""fleet.yaml's keys on EC2 in real requests: the product's provider launches machines in the lab's EC2."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler import config
from autoscaler.controller.ports.provider import LaunchAnswer, LaunchOrder, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.requests import template_of
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import ec2_settings
from autoscaler.providers.ec2.worker.channel import Timeouts, WorkerChannel
from autoscaler.providers.registry import provider_kinds
from lab.ec2.instances import Instance
from tests.lab.ec2.harness import Fixture
from tests.providers.doubles import ManualClock, RememberingTelemetry

PATIENCE = 60.0
KEY = "arn:aws:kms:us-west-2:123456789012:key/0ca3ce62-8c2b-4b3c-9a3e-1b7b1a4b1d11"

TEXT = """
fleet: ci
github:
  apps: [{id: 1, private_key_file: app.pem}]
  webhook_secret_file: secret
  scopes: [{org: acme}]
server: {listen: "127.0.0.1:8443", public_url: "http://127.0.0.1:8443"}
store: sqlite:///state.db
providers:
  there:
    ec2: {region: us-west-2, subnets: [SUBNETS], security_groups: [GROUP]PROVIDER}
skus:
  gpu:
    on: [{provider: there, instance_types: [TYPE]OPTION}]
    image: {name: "runner-linux-*"}
SKU
"""


@dataclass
class Product:
    """Providers made from a fleet.yaml, which share one worker process."""

    ec2: Fixture
    folder: Path
    worker: WorkerChannel

    def written(
        self, sku: str = "", option: str = "", provider: str = "", kind: str = "g5.xlarge"
    ) -> str:
        """Return a fleet.yaml with these keys in its SKU, its launch option and its provider."""
        network = self.ec2.network
        return (
            TEXT.replace("SUBNETS", ", ".join(network.subnets))
            .replace("GROUP", network.security_group)
            .replace("TYPE", kind)
            .replace("SKU", sku and f"    {sku}")
            .replace("OPTION", option and f", {option}")
            .replace("PROVIDER", provider and f", {provider}")
        )

    def provider(self, **keys: str) -> Ec2Provider:
        """Return a provider for a fleet.yaml with these keys (see `written`)."""
        return self.provider_of(self.written(**keys))

    def provider_of(self, text: str) -> Ec2Provider:
        """Return a provider for a fleet.yaml."""
        path = self.folder / "fleet.yaml"
        path.write_text(text)
        settings = config.load(path, provider_kinds(), files=False).settings
        ids = Installations(InstallationId("f00dface"))
        made = ec2_settings(ProviderName("there"), settings, self.folder, ids, "0" * 64)
        return Ec2Provider(made, RememberingTelemetry(), ManualClock(), self.worker)

    async def launch(self, order: LaunchOrder, **keys: str) -> tuple[str, LaunchAnswer]:
        """Prepare and launch an order; return the request and the answer."""
        provider = self.provider(**keys)
        request = await provider.prepare(order)
        assert request == await provider.prepare(order)
        return request, await provider.launch(request)

    async def template(self, request: str) -> Any:
        """Return the launch template's data, as EC2 shows it."""
        shown = await self.ec2.sdk(
            "describe_launch_template_versions", LaunchTemplateId=template_of(request)
        )
        (version,) = shown["LaunchTemplateVersions"]
        return version["LaunchTemplateData"]

    def machine(self, answer: LaunchAnswer) -> Instance:
        """Return the only machine that was launched."""
        assert answer.failures == ()
        (launched,) = answer.launched
        found = self.ec2.lab.instances.find(launched.provider_id)
        assert found is not None
        return found


@pytest.fixture
async def product(
    ec2: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Product]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "lab")
    patient = Timeouts(connect=PATIENCE, read=PATIENCE, answer=PATIENCE)
    worker = WorkerChannel("us-west-2", ec2.lab.endpoint_url, patient)
    yield Product(ec2, tmp_path, worker)
    await worker.close()


def order(token: str = "t", kind: str = "g5.xlarge", **changes: Any) -> LaunchOrder:
    plain = LaunchOrder(
        launch_request=LaunchRequestId(token),
        sku=SkuName("gpu"),
        option=0,
        capacity_type=CapacityType.ON_DEMAND,
        offerings=(f"there/{kind}/us-west-2a/on-demand",),
        count=1,
        token=token,
    )
    return replace(plain, **changes)


@pytest.mark.case(
    "iops and throughput beyond what EBS allows for the disk's size are refused before a launch",
    topic="Images and disks",
    source="rocicorp/mono#4410; runs-on/runs-on#260",
)
async def test_the_options_of_the_disk_reach_ec2(product: Product) -> None:
    sku = (
        "disk_gb: 100\n"
        "    volume: {iops: 6000, throughput: 1500, initialization_rate: 300, "
        f"kms_key: '{KEY}'}}"
    )
    request, answer = await product.launch(order(), sku=sku)
    disk = product.machine(answer).specification.disk
    assert (disk.gb, disk.iops, disk.throughput) == (100, 6000, 1500)
    assert (disk.initialization_rate, disk.kms_key, disk.encrypted) == (300, KEY, True)
    (shown,) = (await product.ec2.sdk("describe_volumes"))["Volumes"]
    assert (shown["Iops"], shown["Throughput"], shown["KmsKeyId"]) == (6000, 1500, KEY)
    assert shown["VolumeInitializationRate"] == 300
    # Another value is another template; EC2 gets no key that the file lacks.
    plain, _ = await product.launch(order("u"), sku="disk_gb: 100")
    assert template_of(plain) != template_of(request)
    (mapping,) = (await product.template(plain))["BlockDeviceMappings"]
    assert sorted(mapping["Ebs"]) == [
        "DeleteOnTermination",
        "Encrypted",
        "VolumeSize",
        "VolumeType",
    ]
    # Without disk_gb the image gives the size: its 30 GiB allow 15,000 IOPS.
    with pytest.raises(ProviderError, match=r"volume\.iops of gpu: 15001 .* write disk_gb: 31"):
        await product.provider(sku="volume: {iops: 15001}").prepare(order("v"))
    assert json.loads(plain)["ClientToken"] == "u"


@pytest.mark.case(
    "an organization requires tags on everything that is created",
    topic="EC2's API",
    source="EC2: tags",
)
async def test_the_operators_tags_are_on_everything(product: Product) -> None:
    keys = {"provider": "tags: {team: all, cost-center: '42'}", "sku": "tags: {team: ml}"}
    request, answer = await product.launch(order(), **keys)
    machine = product.machine(answer)
    theirs = {"team": "ml", "cost-center": "42"}
    (template,) = (
        await product.ec2.sdk("describe_launch_templates", LaunchTemplateIds=[template_of(request)])
    )["LaunchTemplates"]
    fleet, _, volume = (one["Tags"] for one in json.loads(request)["TagSpecifications"])
    for tags in (
        machine.tags,
        machine.specification.volume_tags,
        *(
            {one["Key"]: one["Value"] for one in found}
            for found in (fleet, volume, template["Tags"])
        ),
    ):
        assert theirs.items() <= tags.items()
        assert tags["autoscaler:sku"] == "gpu"
    others, _ = await product.launch(order("u"), provider="tags: {team: all}")
    assert template_of(others) != template_of(request)


async def test_a_boot_script_is_in_the_user_data(product: Product) -> None:
    script = "#!/bin/bash\necho 'from fleet.yaml'\n"
    (product.folder / "boot.sh").write_text(script)
    request, answer = await product.launch(order(), sku="boot_script_file: boot.sh")
    stored = base64.b64decode(product.machine(answer).specification.user_data).decode()
    assert f"<<'RUNNER_AGENT_BOOT_SCRIPT'\n{script}RUNNER_AGENT_BOOT_SCRIPT\n" in stored
    (product.folder / "boot.sh").write_text(script.replace("from", "of"))
    changed, _ = await product.launch(order("u"), sku="boot_script_file: boot.sh")
    assert template_of(changed) != template_of(request)


@pytest.mark.parametrize(
    ("keys", "public"), [("public_ip: true", True), ("public_ip: false", False)]
)
async def test_machines_get_a_public_address_as_the_file_says(
    product: Product, keys: str, public: bool
) -> None:
    ec2 = product.ec2
    for subnet in ec2.network.subnets:
        await ec2.sdk(
            "modify_subnet_attribute", SubnetId=subnet, MapPublicIpOnLaunch={"Value": not public}
        )
    request, answer = await product.launch(order(), provider=keys)
    machine = product.machine(answer)
    assert bool(machine.public_ip) is public
    assert machine.specification.security_groups == (ec2.network.security_group,)
    assert "SecurityGroupIds" not in await product.template(request)
    (shown,) = await ec2.described()
    assert ("PublicIpAddress" in shown) is public
    # Without the key the subnet says it.
    _, plain = await product.launch(order("u"))
    assert bool(product.machine(plain).public_ip) is not public


@pytest.mark.case(
    "a machine gets no more Elastic Fabric Adapters than its type supports",
    topic="EC2's API",
    source="Karpenter: instance types",
)
async def test_machines_get_their_elastic_fabric_adapters(product: Product) -> None:
    kind = "p4d.24xlarge"
    wanted = order(kind=kind)
    for subnet in product.ec2.network.subnets:
        await product.ec2.sdk(
            "modify_subnet_attribute", SubnetId=subnet, MapPublicIpOnLaunch={"Value": True}
        )
    keys = {"kind": kind, "option": "efa_interfaces: 4"}
    request, answer = await product.launch(wanted, provider="public_ip: false", **keys)
    machine = product.machine(answer)
    assert machine.specification.security_groups == (product.ec2.network.security_group,)
    (shown,) = await product.ec2.described()
    assert [
        (
            one["InterfaceType"],
            one["Attachment"]["NetworkCardIndex"],
            one["Attachment"]["DeviceIndex"],
        )
        for one in shown["NetworkInterfaces"]
    ] == [("efa", 0, 0), ("efa", 1, 1), ("efa", 2, 1), ("efa", 3, 1)]
    assert not machine.public_ip
    fewer, _ = await product.launch(order("u", kind=kind), kind=kind, option="efa_interfaces: 1")
    assert template_of(fewer) != template_of(request)


async def test_options_of_one_sku_have_their_own_templates(product: Product) -> None:
    """The same image and disk, but only the second option has an adapter."""
    second = "}, {provider: there, instance_types: [p4d.24xlarge], efa_interfaces: 1"
    file = product.written().replace("[g5.xlarge]", f"[g5.xlarge]{second}")
    provider = product.provider_of(file)
    plain = await provider.prepare(order())
    kind = "p4d.24xlarge"
    with_efa = await provider.prepare(order("u", kind=kind, option=1))
    assert template_of(plain) != template_of(with_efa)
    assert "NetworkInterfaces" not in await product.template(plain)
    assert len((await product.template(with_efa))["NetworkInterfaces"]) == 1
    assert product.machine(await provider.launch(with_efa)).instance_type == kind


@pytest.mark.case(
    "a cluster placement group takes no machine in a second zone",
    topic="EC2's API",
    source="Karpenter: placement groups",
)
async def test_machines_are_launched_into_their_placement_group(product: Product) -> None:
    product.ec2.lab.placement_groups.add("near")
    provider = product.provider(option="placement_group: near")
    await provider.open()
    offered = [one.key for one in provider.offerings(SkuName("gpu"), 0)]
    zones = ("us-west-2a", "us-west-2b", "us-west-2c")
    assert offered == [f"there/g5.xlarge/{zone}/on-demand/near" for zone in zones]
    first = await provider.launch(await provider.prepare(order(offerings=(offered[1],))))
    assert product.machine(first).specification.placement_group == "near"
    second = await provider.launch(await provider.prepare(order("u", offerings=tuple(offered))))
    (machine,) = second.launched
    assert machine.zone == zones[1]
    # EC2 names the zone that it refused, and not the group.
    assert [(one.failure, one.offering) for one in second.failures] == [
        (FailureClass.CAPACITY, f"there/g5.xlarge/{zones[0]}/on-demand")
    ]


async def test_machines_are_launched_into_their_capacity_reservation(product: Product) -> None:
    product.ec2.lab.reservations.add("cr-0f00", "g5.xlarge", "us-west-2b", 2)
    provider = product.provider(option="capacity_reservation: cr-0f00")
    await provider.open()
    (offered,) = (one.key for one in provider.offerings(SkuName("gpu"), 0))
    assert offered == "there/g5.xlarge/us-west-2b/on-demand/cr-0f00"
    assert (await provider.quotas())["there/cr-0f00"] == 2
    # Another user of the account was faster.
    request = await provider.prepare(order(offerings=(offered,), count=3))
    answer = await provider.launch(request)
    assert len(answer.launched) == 2
    assert [(one.failure, one.code) for one in answer.failures] == [
        (FailureClass.CAPACITY, "ReservationCapacityExceeded")
    ]
    pages = [page async for page in provider.machines()]
    assert [one.quota_usage for page in pages for one in page] == [(("there/cr-0f00", 1),)] * 2
    plain, _ = await product.launch(order("u"))
    assert template_of(plain) != template_of(request)
    assert "CapacityReservationSpecification" not in await product.template(plain)


async def test_a_reservation_that_does_not_exist_needs_an_operator(product: Product) -> None:
    provider = product.provider(option="capacity_reservation: cr-0f00")
    await provider.open()
    answer = await provider.launch(await provider.prepare(order()))
    assert [(one.failure, one.code) for one in answer.failures] == [
        (FailureClass.CONFIGURATION, "InvalidCapacityReservationId.NotFound")
    ]


async def test_machines_are_launched_into_their_capacity_block(product: Product) -> None:
    kind = "p4d.24xlarge"
    ends = product.ec2.clock.now() + 86400.0
    product.ec2.lab.reservations.add_block("cr-0f00", kind, "us-west-2b", 1, ends)
    keys = "capacity: [capacity-block], capacity_reservation: cr-0f00"
    provider = product.provider(kind=kind, option=keys)
    await provider.open()
    (offered,) = provider.offerings(SkuName("gpu"), 0)
    block = CapacityType.CAPACITY_BLOCK
    wanted = order(offerings=(offered.key,), capacity_type=block, count=2)
    request = json.loads(await provider.prepare(wanted))
    assert request["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "capacity-block"
    assert not {"OnDemandOptions", "SpotOptions"} & request.keys()
    answer = await provider.launch(json.dumps(request))
    assert [(one.zone, one.capacity_type) for one in answer.launched] == [("us-west-2b", block)]
    assert [(one.failure, one.code, one.offering) for one in answer.failures] == [
        (
            FailureClass.CAPACITY,
            "InsufficientInstanceCapacity",
            f"there/{kind}/us-west-2b/capacity-block",
        )
    ]
    template = await product.template(json.dumps(request))
    assert template["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    ((listed,),) = [page async for page in provider.machines()]
    assert (listed.capacity_type, listed.dollars_per_hour) == (block, 0.0)


@pytest.mark.case(
    "network card 0 of p6-b300 takes no Elastic Fabric Adapter",
    topic="EC2's API",
    source="aws/aws-parallelcluster#7143",
)
async def test_adapters_of_p6_b300_are_on_the_cards_from_1_on(product: Product) -> None:
    kind = "p6-b300.48xlarge"
    where = (f"there/{kind}/us-west-2b/on-demand",)
    keys = {"kind": kind, "option": "efa_interfaces: 16"}
    _, answer = await product.launch(order(kind=kind, offerings=where), **keys)
    product.machine(answer)
    (shown,) = await product.ec2.described()
    found = [
        (
            one["InterfaceType"],
            one["Attachment"]["NetworkCardIndex"],
            one["Attachment"]["DeviceIndex"],
        )
        for one in shown["NetworkInterfaces"]
    ]
    assert found == [("interface", 0, 0), *(("efa-only", card, 1) for card in range(1, 17))]
