"""Limits of an account: quotas by family, addresses of subnets, the role that spot needs."""

import aiohttp
import pytest
from botocore.exceptions import ClientError

from autoscaler.model.catalogue import CapacityType
from lab.ec2.quotas import BOUNDLESS, QUOTAS, quota_of, vcpus
from tests.lab.ec2.harness import Fixture, connect, launched

G_ON_DEMAND, G_SPOT, STANDARD = "L-DB2E81BA", "L-3819A6DF", "L-1216C47A"


def refusals(fleet: dict[str, list[dict[str, str]]]) -> set[str]:
    return {one["ErrorCode"] for one in fleet["Errors"]}


@pytest.mark.parametrize(
    ("instance_type", "on_demand", "spot"),
    [
        ("m7g.xlarge", "L-1216C47A", "L-34B43A08"),
        ("c7i.2xlarge", "L-1216C47A", "L-34B43A08"),
        ("t3.large", "L-1216C47A", "L-34B43A08"),
        ("g5.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("g4ad.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("vt1.3xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("p5.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("p6-b200.48xlarge", "L-417A185B", None),
        ("f2.6xlarge", "L-74FC7D96", "L-88CF9481"),
        ("inf2.xlarge", "L-1945791B", "L-B5D1601B"),
        ("trn1.2xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("dl1.24xlarge", "L-6E869C2A", "L-85EED4F7"),
        ("x2idn.16xlarge", "L-7295265B", "L-E3A00192"),
    ],
)
def test_the_family_of_an_instance_type_decides_its_quota(
    instance_type: str, on_demand: str, spot: str | None
) -> None:
    found = [quota_of(instance_type, kind) for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT)]
    assert [quota and quota.code for quota in found] == [on_demand, spot]


def test_types_with_other_quotas_have_no_quota_in_the_lab() -> None:
    assert quota_of("hpc7g.4xlarge", CapacityType.ON_DEMAND) is None
    assert quota_of("u-6tb1.112xlarge", CapacityType.ON_DEMAND) is None


@pytest.mark.parametrize(
    ("instance_type", "count"),
    [("t3.large", 2), ("g5.xlarge", 4), ("p5.48xlarge", 192), ("c4.8xlarge", 36)],
)
def test_the_size_in_a_types_name_gives_its_vcpus(instance_type: str, count: int) -> None:
    assert vcpus(instance_type) == count


@pytest.mark.parametrize("instance_type", ["m6id.metal", "t3.medium", "hpc7a.96xlarge"])
def test_unknown_instance_sizes_have_no_vcpus(instance_type: str) -> None:
    assert vcpus(instance_type) is None


async def test_a_type_with_unknown_vcpus_is_not_launched_under_a_quota(ec2: Fixture) -> None:
    metal = [{"InstanceType": "m6id.metal", "SubnetId": ec2.network.subnets[0]}]
    assert len(launched(await ec2.fleet(1, overrides=metal))) == 1
    await ec2.ended([one.id for one in ec2.lab.instances])
    ec2.lab.quotas.set(STANDARD, 10_000)
    (error,) = (await ec2.fleet(1, overrides=metal))["Errors"]
    assert "cannot count the vCPUs of m6id.metal" in error["ErrorMessage"]


async def test_an_instance_shows_its_processor(ec2: Fixture) -> None:
    await ec2.fleet(1)
    (machine,) = await ec2.described()
    assert machine["CpuOptions"] == {"CoreCount": 2, "ThreadsPerCore": 2}


@pytest.mark.case(
    "new accounts have a quota of 0 for GPUs: jobs show it as their reason to wait",
    topic="EC2's API",
    source="EC2: on-demand quotas",
)
async def test_a_fleet_beyond_its_quota_is_partial_with_an_error_for_each_pool(
    ec2: Fixture,
) -> None:
    ec2.lab.quotas.set(G_ON_DEMAND, 22)
    fleet = await ec2.fleet(8)
    assert len(launched(fleet)) == 5
    assert refusals(fleet) == {"VcpuLimitExceeded"}
    assert "current vCPU limit of 22" in fleet["Errors"][0]["ErrorMessage"]
    assert ec2.lab.quotas.used(G_ON_DEMAND) == 20


@pytest.mark.case(
    "spot has quotas and an error of its own",
    topic="EC2's API",
    source="EC2: spot quotas",
)
async def test_spot_has_a_quota_and_a_code_of_its_own(ec2: Fixture) -> None:
    ec2.lab.quotas.set(G_SPOT, 4)
    ec2.lab.quotas.set(G_ON_DEMAND, 0)
    fleet = await ec2.fleet(2, capacity_type="spot")
    assert len(launched(fleet)) == 1
    assert refusals(fleet) == {"MaxSpotInstanceCountExceeded"}
    assert launched(await ec2.fleet(1)) == []


async def test_families_do_not_share_a_quota(ec2: Fixture) -> None:
    ec2.lab.quotas.set(G_ON_DEMAND, 0)
    standard = [{"InstanceType": "m7g.xlarge", "SubnetId": ec2.network.subnets[0]}]
    assert len(launched(await ec2.fleet(3, overrides=standard))) == 3


async def test_terminated_machines_return_their_quota(ec2: Fixture) -> None:
    ec2.lab.quotas.set(G_ON_DEMAND, 8)
    first = launched(await ec2.fleet(2))
    assert launched(await ec2.fleet(1)) == []
    await ec2.sdk("terminate_instances", InstanceIds=first[:1])
    assert len(launched(await ec2.fleet(2))) == 1
    ec2.lab.quotas.set(G_ON_DEMAND, None)
    assert len(launched(await ec2.fleet(9))) == 9


async def test_run_instances_above_the_quota_launches_nothing(ec2: Fixture) -> None:
    ec2.lab.quotas.set(STANDARD, 4)
    with pytest.raises(ClientError, match="VcpuLimitExceeded"):
        await ec2.sdk(
            "run_instances",
            LaunchTemplate={"LaunchTemplateId": ec2.template},
            InstanceType="m7g.xlarge",
            SubnetId=ec2.network.subnets[0],
            MinCount=2,
            MaxCount=2,
        )
    assert len(ec2.lab.instances) == 0


def test_an_unknown_quota_is_refused(ec2: Fixture) -> None:
    with pytest.raises(KeyError, match="L-0"):
        ec2.lab.quotas.set("L-0", 1)


async def test_service_quotas_shows_the_quotas_in_force(ec2: Fixture) -> None:
    ec2.lab.quotas.set(G_ON_DEMAND, 64)
    sdk = connect(ec2.lab, "service-quotas")
    one = (await sdk("get_service_quota", ServiceCode="ec2", QuotaCode=G_ON_DEMAND))["Quota"]
    assert (one["Value"], one["QuotaName"]) == (64.0, "Running On-Demand G and VT instances")
    seen: list[str] = []
    params: dict[str, object] = {"ServiceCode": "ec2", "MaxResults": 7}
    while True:
        page = await sdk("list_service_quotas", **params)
        seen += [quota["QuotaCode"] for quota in page["Quotas"]]
        unset = {q["Value"] for q in page["Quotas"] if q["QuotaCode"] != G_ON_DEMAND}
        assert unset == {float(BOUNDLESS)}
        if "NextToken" not in page:
            break
        params["NextToken"] = page["NextToken"]
    assert seen == [quota.code for quota in QUOTAS]
    assert len(set(seen)) == len(seen)
    assert ec2.lab.calls["servicequotas"] == 1 + -(-len(QUOTAS) // 7)


@pytest.mark.parametrize(
    ("operation", "params"),
    [("get_service_quota", {"QuotaCode": G_ON_DEMAND}), ("list_service_quotas", {})],
)
async def test_service_quotas_can_refuse_reads_while_ec2_applies_the_quotas(
    ec2: Fixture, operation: str, params: dict[str, str]
) -> None:
    ec2.lab.quotas.set(G_ON_DEMAND, 8)
    ec2.lab.quotas.denied = True
    with pytest.raises(ClientError, match="AccessDeniedException"):
        await connect(ec2.lab, "service-quotas")(operation, ServiceCode="ec2", **params)
    assert len(launched(await ec2.fleet(3))) == 2


@pytest.mark.parametrize(
    ("operation", "params", "code"),
    [
        ("get_service_quota", {"QuotaCode": "L-0"}, "NoSuchResourceException"),
        ("list_service_quotas", {"ServiceCode": "vpc"}, "NoSuchResourceException"),
        ("list_service_quotas", {"NextToken": "x"}, "InvalidPaginationTokenException"),
        ("list_service_quotas", {"NextToken": "999"}, "InvalidPaginationTokenException"),
        ("list_services", {}, "UnknownOperationException"),
    ],
)
async def test_invalid_requests_to_service_quotas_are_refused(
    ec2: Fixture, operation: str, params: dict[str, str], code: str
) -> None:
    asked = params if operation == "list_services" else {"ServiceCode": "ec2"} | params
    with pytest.raises(ClientError) as error:
        await connect(ec2.lab, "service-quotas")(operation, **asked)
    assert error.value.response["Error"]["Code"] == code


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"ServiceCode": "ec2", "MaxResults": 0}', b"\xff"]
)
async def test_malformed_requests_to_service_quotas_are_refused(ec2: Fixture, body: bytes) -> None:
    headers = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=lab/20260101/us-west-2/servicequotas/"
        "aws4_request, SignedHeaders=host, Signature=0",
        "X-Amz-Target": "ServiceQuotasV20190624.ListServiceQuotas",
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(ec2.lab.endpoint_url, data=body, headers=headers) as answer,
    ):
        assert answer.status == 400


async def test_a_subnet_shows_its_free_addresses_and_can_run_out_of_them(ec2: Fixture) -> None:
    full, other = ec2.network.subnets[:2]

    async def free() -> dict[str, int]:
        subnets = (await ec2.sdk("describe_subnets", SubnetIds=[other, full]))["Subnets"]
        return {one["SubnetId"]: one["AvailableIpAddressCount"] for one in subnets}

    # A /19 less the five addresses that EC2 keeps.
    assert await free() == {full: 8187, other: 8187}
    ec2.lab.faults.set_addresses(full, 2)
    overrides = [{"InstanceType": "g5.xlarge", "SubnetId": subnet} for subnet in (full, other)]
    fleet = await ec2.fleet(5, overrides=overrides)
    assert refusals(fleet) == {"InsufficientFreeAddressesInSubnet"}
    taken = [len(group["InstanceIds"]) for group in fleet["Instances"]]
    assert taken == [2, 3]
    assert await free() == {full: 0, other: 8184}
    await ec2.ended(fleet["Instances"][0]["InstanceIds"][:1])
    assert (await free())[full] == 1
    ec2.lab.faults.set_addresses(full, None)
    assert (await free())[full] == 8186


async def test_without_the_service_linked_role_only_spot_is_refused(ec2: Fixture) -> None:
    ec2.lab.faults.spot_role = False
    fleet = await ec2.fleet(1, capacity_type="spot")
    assert launched(fleet) == []
    assert refusals(fleet) == {"AuthFailure.ServiceLinkedRoleCreationNotPermitted"}
    assert len(launched(await ec2.fleet(1))) == 1
