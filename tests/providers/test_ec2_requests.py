"""The exact requests: launch template, CreateFleet, and which image they name."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import LaunchOrder, ProviderError
from autoscaler.model.catalogue import CapacityType, Rate
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.configuration import Ec2Section, Volume
from autoscaler.providers.ec2.instance_types import ORDINARY_FIRST_CARD
from autoscaler.providers.ec2.launching.requests import (
    fleet_request,
    machine_tags,
    network,
    newest_image,
    template_data,
    template_name,
    template_of,
)
from autoscaler.providers.ec2.settings import Ec2Settings, NamedImage
from autoscaler.providers.ec2.worker.rows import ImageRow
from tests.providers.ec2_keys import option_of, sku_of, with_keys

SKU = sku_of(
    SkuName("linux.g5"),
    NamedImage(name="gpu-*"),
    "#!/bin/sh\necho greetings\n",
    {0: option_of("g6.4xlarge", "g5.4xlarge")},
    disk_gb=150,
)
SETTINGS = Ec2Settings(
    name=ProviderName("east"),
    fleet="ci gpu",
    installations=Installations(InstallationId("f00dface")),
    section=Ec2Section(
        region="us-east-1",
        subnets=("subnet-a",),
        security_groups=("sg-0a",),
        instance_profile="gpu-runner",
    ),
    skus={SKU.name: SKU},
)
IMAGE = ImageRow("ami-1", "gpu-1", "2026-01-01T00:00:00.000Z", "x86_64", "/dev/xvda", 30)
SUBNETS = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}


VOLUMES: tuple[dict[str, Any], ...] = (
    {"iops": 4000},
    {"throughput": 126},
    {"initialization_rate": 100},
    {"kms_key": "alias/ci"},
    {"kms_key": "alias/other"},
)


def order(capacity_type: CapacityType, **changes: Any) -> LaunchOrder:
    plain = LaunchOrder(
        launch_request=LaunchRequestId("c-1"),
        sku=SKU.name,
        option=0,
        capacity_type=capacity_type,
        offerings=tuple(
            f"east/{name}/{zone}/{capacity_type}"
            for name in ("g6.4xlarge", "g5.4xlarge")
            for zone in SUBNETS
        ),
        count=7,
        token="token-1",
    )
    return replace(plain, **changes)


@pytest.mark.case(
    "a job reads user data and the metadata service: they contain no secret",
    topic="Hostile input",
    source="GitHub: secure use; EC2: user data",
)
def test_the_template_restricts_metadata_and_encrypts_the_disk() -> None:
    data = template_data(SETTINGS, SKU, IMAGE)
    assert data["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "InstanceMetadataTags": "disabled",
    }
    assert data["BlockDeviceMappings"] == [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {
                "DeleteOnTermination": True,
                "Encrypted": True,
                "VolumeSize": 150,
                "VolumeType": "gp3",
            },
        }
    ]
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["IamInstanceProfile"] == {"Name": "gpu-runner"}
    assert base64.b64decode(data["UserData"]).decode() == SKU.user_data
    tags = {one["Key"]: one["Value"] for one in data["TagSpecifications"][0]["Tags"]}
    assert tags["autoscaler:fleet"] == "ci gpu"
    assert tags["autoscaler:installation"] == "f00dface"
    assert tags["autoscaler:sku"] == "linux.g5"


@pytest.mark.case(
    "every disk of an image is encrypted and deleted with its machine",
    topic="Images and disks",
    source="EC2: volumes after termination",
)
def test_every_disk_of_the_image_is_encrypted_and_deleted_with_the_machine() -> None:
    data = template_data(SETTINGS, SKU, IMAGE._replace(other_disks=(("/dev/sdf", 40),)))
    root, other = data["BlockDeviceMappings"]
    assert (other["DeviceName"], other["Ebs"]) == ("/dev/sdf", {**root["Ebs"], "VolumeSize": 40})
    tags = {one["ResourceType"]: one["Tags"] for one in data["TagSpecifications"]}
    assert tags["volume"] == tags["instance"]


def test_a_disk_without_a_size_in_its_image_gets_the_smallest() -> None:
    """EBS accepts no volume of 0 GiB."""
    image = IMAGE._replace(other_disks=(("/dev/sdf", 0), ("/dev/sdg", 1)))
    _, *others = template_data(SETTINGS, SKU, image)["BlockDeviceMappings"]
    assert [one["Ebs"]["VolumeSize"] for one in others] == [1, 1]


def test_the_key_is_for_every_disk_and_the_performance_for_the_root_disk() -> None:
    sku = with_keys(
        SKU,
        volume=Volume(iops=4000, throughput=1000, initialization_rate=100, kms_key="alias/ci"),
    )
    image = IMAGE._replace(other_disks=(("/dev/sdf", 40),))
    root, other = (one["Ebs"] for one in template_data(SETTINGS, sku, image)["BlockDeviceMappings"])
    performance = {"Iops": 4000, "Throughput": 1000, "VolumeInitializationRate": 100}
    assert root == {**other, "VolumeSize": 150, **performance}
    assert other["KmsKeyId"] == "alias/ci"


@pytest.mark.case(
    "iops and throughput beyond what EBS allows for the disk's size are refused before a launch",
    topic="Images and disks",
    source="rocicorp/mono#4410; runs-on/runs-on#260",
)
@pytest.mark.parametrize(
    ("volume", "gb", "refusal"),
    [
        (Volume(iops=3000), 1, ""),
        (Volume(iops=15_000), 30, ""),
        (Volume(iops=15_001), 30, "volume.iops of linux.g5: 15001 IOPS .* disk_gb: 31 or"),
        (Volume(throughput=750), 1, ""),
        (Volume(throughput=751), 1, "volume.throughput of linux.g5: .* iops: 3004 or"),
        (Volume(iops=8000, throughput=2000), 16, ""),
        (
            Volume.model_construct(iops=8000, throughput=2001),
            16,
            "volume.throughput .* iops: 8004 or",
        ),
    ],
)
def test_a_disk_that_ebs_refuses_is_a_configuration_error(
    volume: Volume, gb: int, refusal: str
) -> None:
    sku, image = with_keys(SKU, disk_gb=None, volume=volume), IMAGE._replace(root_gb=gb)
    if not refusal:
        assert template_data(SETTINGS, sku, image)
        return
    with pytest.raises(ProviderError, match=refusal) as caught:
        template_data(SETTINGS, sku, image)
    assert (caught.value.code, caught.value.failure) == ("Volume", FailureClass.CONFIGURATION)


def test_the_controllers_tags_count_more_than_the_operators() -> None:
    """`check` refuses these keys; without this, a machine could leave the fleet's list."""
    tags = machine_tags(
        SETTINGS, with_keys(SKU, tags={"autoscaler:sku": "x", "Name": "x", "a": "b"})
    )
    assert tags == {**machine_tags(SETTINGS, SKU), "a": "b"}


def test_a_template_with_an_interface_names_the_groups_in_it() -> None:
    """CreateFleet's overrides name the subnet: EC2 takes it for the first interface (Karpenter)."""
    data = template_data(with_keys(SETTINGS, public_ip=True), SKU, IMAGE)
    assert "SecurityGroupIds" not in data
    (interface,) = data["NetworkInterfaces"]
    assert interface == {
        "DeviceIndex": 0,
        "Groups": ["sg-0a"],
        "DeleteOnTermination": True,
        "AssociatePublicIpAddress": True,
    }
    assert template_data(SETTINGS, SKU, IMAGE)["SecurityGroupIds"] == ["sg-0a"]


@pytest.mark.parametrize(
    ("instance_type", "kinds"),
    [
        ("p5.48xlarge", ["efa", "efa", "efa"]),
        (min(ORDINARY_FIRST_CARD), ["interface", "efa-only", "efa-only", "efa-only"]),
    ],
)
def test_each_network_card_gets_one_interface(instance_type: str, kinds: list[str]) -> None:
    """Only the first interface has device index 0 (EC2: Elastic Fabric Adapter, network cards)."""
    option = option_of(instance_type, capacity=(CapacityType.SPOT,), efa_interfaces=3)
    for settings in (SETTINGS, with_keys(SETTINGS, public_ip=True)):
        found = network(settings.section, option)["NetworkInterfaces"]
        assert found == [
            {
                "DeviceIndex": min(card, 1),
                "Groups": ["sg-0a"],
                "DeleteOnTermination": True,
                "InterfaceType": kind,
                "NetworkCardIndex": card,
            }
            for card, kind in enumerate(kinds)
        ]


def test_a_reservation_is_the_only_place_of_its_launch_options_machines() -> None:
    option = option_of("p5.48xlarge", capacity_reservation="cr-1")
    assert template_data(SETTINGS, SKU, IMAGE, option)["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
    }


@pytest.mark.parametrize(
    ("count", "accepted"), [(0, False), (1, True), (1000, True), (1001, False)]
)
def test_a_request_has_as_many_machines_as_ec2_accepts(count: int, accepted: bool) -> None:
    wanted = order(CapacityType.SPOT, count=count)
    if accepted:
        assert f'"TotalTargetCapacity":{count}' in fleet_request(SETTINGS, wanted, "lt-7", SUBNETS)
        return
    with pytest.raises(ProviderError, match=f"{count} machines in one request, not 1 to 1000"):
        fleet_request(SETTINGS, wanted, "lt-7", SUBNETS)


def test_the_template_of_a_stored_request_is_found() -> None:
    text = fleet_request(SETTINGS, order(CapacityType.SPOT), "lt-7", SUBNETS)
    assert template_of(text) == "lt-7"


@pytest.mark.case(
    "the disk is never smaller than the image's snapshot",
    topic="Images and disks",
    source="EC2: EbsBlockDevice",
)
def test_the_disk_is_never_smaller_than_the_images_snapshot() -> None:
    large = template_data(SETTINGS, SKU, IMAGE._replace(root_gb=300))
    assert large["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 300


def test_the_name_of_a_template_is_derived_from_its_content() -> None:
    name = template_name("ci gpu", template_data(SETTINGS, SKU, IMAGE))
    assert name.startswith("autoscaler-ci-gpu-")
    assert name == template_name("ci gpu", template_data(SETTINGS, SKU, IMAGE))
    changed = [
        template_data(SETTINGS, SKU, IMAGE._replace(id="ami-2")),
        template_data(SETTINGS, replace(SKU, user_data="#!/bin/sh\n"), IMAGE),
        template_data(SETTINGS, with_keys(SKU, disk_gb=151), IMAGE),
        template_data(with_keys(SETTINGS, public_ip=True), SKU, IMAGE),
        template_data(with_keys(SETTINGS, public_ip=False), SKU, IMAGE),
        template_data(SETTINGS, with_keys(SKU, tags={"team": "ml"}), IMAGE),
        template_data(with_keys(SETTINGS, tags={"team": "all"}), SKU, IMAGE),
        *(
            template_data(SETTINGS, with_keys(SKU, volume=Volume(**option)), IMAGE)
            for option in VOLUMES
        ),
        template_data(with_keys(SETTINGS, security_groups=()), SKU, IMAGE),
        template_data(with_keys(SETTINGS, instance_profile=None), SKU, IMAGE),
        template_data(
            replace(SETTINGS, installations=Installations(InstallationId("other"))), SKU, IMAGE
        ),
    ]
    assert len({name, *(template_name("ci gpu", one) for one in changed)}) == 16


@pytest.mark.case(
    "spot uses what is cheap and available, on-demand the types in order",
    topic="EC2's API",
    source="Karpenter pkg/providers/instance",
)
def test_an_on_demand_request_prefers_types_in_order() -> None:
    text = fleet_request(SETTINGS, order(CapacityType.ON_DEMAND), "lt-1", SUBNETS)
    body = json.loads(text)
    assert body["Type"] == "instant"
    assert body["ClientToken"] == "token-1"
    assert body["OnDemandOptions"] == {"AllocationStrategy": "prioritized"}
    assert "SpotOptions" not in body
    assert body["TargetCapacitySpecification"] == {
        "TotalTargetCapacity": 7,
        "DefaultTargetCapacityType": "on-demand",
    }
    (config,) = body["LaunchTemplateConfigs"]
    assert config["LaunchTemplateSpecification"] == {"LaunchTemplateId": "lt-1", "Version": "1"}
    assert [
        (one["InstanceType"], one["SubnetId"], one["AvailabilityZone"], one["Priority"])
        for one in config["Overrides"]
    ] == [
        ("g6.4xlarge", "subnet-a", "us-east-1a", 0.0),
        ("g6.4xlarge", "subnet-b", "us-east-1b", 0.0),
        ("g5.4xlarge", "subnet-a", "us-east-1a", 1.0),
        ("g5.4xlarge", "subnet-b", "us-east-1b", 1.0),
    ]
    tags = {one["ResourceType"]: one["Tags"] for one in body["TagSpecifications"]}
    assert {"Key": "autoscaler:launch-request", "Value": "c-1"} in tags["instance"]
    assert tags["fleet"] == tags["instance"] == tags["volume"]
    assert text == json.dumps(body, sort_keys=True, separators=(",", ":"))


@pytest.mark.case(
    "spot uses what is cheap and available, on-demand the types in order",
    topic="EC2's API",
    source="Karpenter pkg/providers/instance",
)
def test_a_spot_request_is_price_capacity_optimized() -> None:
    body = json.loads(fleet_request(SETTINGS, order(CapacityType.SPOT), "lt-1", SUBNETS))
    assert body["SpotOptions"] == {"AllocationStrategy": "price-capacity-optimized"}
    assert "OnDemandOptions" not in body
    assert all("Priority" not in one for one in body["LaunchTemplateConfigs"][0]["Overrides"])


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 0},
        {"count": 1001},
        {"offerings": ()},
        {"offerings": ("east/g5.xlarge/us-east-1z/spot",)},
        {"offerings": ("west/g5.xlarge/us-east-1a/spot",)},
        {"offerings": ("east/g5.xlarge/us-east-1a/on-demand",)},
        {"offerings": ("east/g5.xlarge/us-east-1a/spot",) * 301},
    ],
)
def test_an_order_that_cannot_be_expressed_is_a_configuration_error(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(ProviderError) as refusal:
        fleet_request(SETTINGS, order(CapacityType.SPOT, **changes), "lt-1", SUBNETS)
    assert refusal.value.failure is FailureClass.CONFIGURATION


@pytest.mark.case(
    "a newer image appears while the controller runs",
    topic="Images and disks",
    source="EC2: DescribeImages",
)
def test_the_newest_image_of_the_architecture_is_used() -> None:
    newer = IMAGE._replace(id="ami-2", created="2026-02-01T00:00:00.000Z")
    other = IMAGE._replace(id="ami-3", created="2026-03-01T00:00:00.000Z", architecture="arm64")
    assert newest_image(SKU, [newer, IMAGE, other]) == newer


@pytest.mark.parametrize(
    ("images", "code"),
    [
        ([], "ImageNotFound"),
        ([IMAGE._replace(architecture="arm64")], "ImageArchitecture"),
        ([IMAGE._replace(root_device="")], "ImageRootDevice"),
    ],
)
def test_no_fitting_image_is_a_configuration_error(images: list[ImageRow], code: str) -> None:
    with pytest.raises(ProviderError, match=r"gpu-|ami-1") as refusal:
        newest_image(SKU, images)
    assert (refusal.value.code, refusal.value.failure) == (code, FailureClass.CONFIGURATION)


def test_settings_show_no_user_data_and_refuse_an_empty_bucket() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Rate(0, 1)
    assert "greetings" not in repr(SKU)
