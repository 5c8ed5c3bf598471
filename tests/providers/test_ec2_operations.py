"""Each request and answer of the worker process, checked against the service models of botocore."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from autoscaler.providers.ec2.worker.operations import OPERATIONS
from autoscaler.providers.ec2.worker.process import Clients
from autoscaler.providers.ec2.worker.process import answer as answer_of
from autoscaler.providers.ec2.worker.sent_requests import SentRequests

AT = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
NEXT = {"NextToken": "p2"}
INSTANCE = {
    "InstanceId": "i-1",
    "State": {"Name": "terminated"},
    "InstanceType": "g5.xlarge",
    "Placement": {"AvailabilityZone": "us-east-1a", "Tenancy": "dedicated"},
    "InstanceLifecycle": "spot",
    "Platform": "Windows",
    "ImageId": "ami-1",
    "LaunchTime": AT,
    "StateReason": {"Code": "Server.Gone", "Message": "it left"},
    "CpuOptions": {"CoreCount": 4, "ThreadsPerCore": 2},
    "Tags": [
        {"Key": f"autoscaler:{key}", "Value": f"the {key}"}
        for key in ("fleet", "installation", "sku", "launch-request")
    ]
    + [{"Key": "Name", "Value": "another's"}],
    "CapacityReservationId": "cr-1",
    "CapacityReservationSpecification": {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
    },
}
BARE = {
    "InstanceId": "i-2",
    "State": {"Name": "running"},
    "InstanceType": "g5.xlarge",
    "LaunchTime": AT,
}
IMAGE = {
    "ImageId": "ami-1",
    "Name": "gpu",
    "CreationDate": "2026-11-22T10:00:00.000Z",
    "Architecture": "x86_64",
    "RootDeviceName": "/dev/sda1",
    "BlockDeviceMappings": [
        {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 30}},
        {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 7}},
        {"DeviceName": "/dev/sdc", "VirtualName": "ephemeral0"},
    ],
}
SPOT = {
    "InstanceType": "g5.xlarge",
    "AvailabilityZone": "us-east-1a",
    "ProductDescription": "Linux/UNIX",
    "SpotPrice": "0.4",
    "Timestamp": AT,
}
BARE_SPOT = {"InstanceType": "g5.xlarge", "SpotPrice": "0.4", "Timestamp": AT}
FLEET = {
    "Type": "instant",
    "TargetCapacitySpecification": {"TotalTargetCapacity": 3},
    "LaunchTemplateConfigs": [
        {"Overrides": [{"SubnetId": "subnet-a", "AvailabilityZone": "us-east-1a"}]}
    ],
}
LAUNCHED = {
    "Instances": [
        {
            "LaunchTemplateAndOverrides": {"Overrides": override},
            "InstanceType": "g5.xlarge",
            "Lifecycle": "spot",
            "InstanceIds": [machine],
        }
        for machine, override in (
            ("i-1", {"SubnetId": "subnet-a"}),
            ("i-2", {"AvailabilityZone": "us-east-1b", "SubnetId": "subnet-a"}),
            ("i-3", {}),
        )
    ],
    "Errors": [
        {
            "LaunchTemplateAndOverrides": {
                "Overrides": {"SubnetId": "subnet-a", "InstanceType": "g6.xlarge"}
            },
            "ErrorCode": "InsufficientInstanceCapacity",
            "ErrorMessage": "none left",
        },
        {},
    ],
}
FIRST = {"page": None}
SECOND = {"page": "p1"}


def tagged(size: int) -> dict[str, Any]:
    filters = [{"Name": "tag:a", "Values": ["1", "2"]}]
    return {"Filters": filters, "MaxResults": size}


TAGS = {"tags": {"a": ("1", "2")}}
AVAILABLE = {"Name": "status", "Values": ["available"]}
LISTED = {"Filters": [{"Name": "tag:f", "Values": ["x"]}], "MaxResults": 9}
OFFERED = {
    "LocationType": "availability-zone",
    "Filters": [{"Name": "location", "Values": ["us-east-1a"]}],
    "MaxResults": 1000,
}
IMAGES = {
    "Owners": ["self"],
    "Filters": [
        {"Name": "name", "Values": ["gpu*"]},
        {"Name": "state", "Values": ["available"]},
    ],
    "MaxResults": 500,
}
HISTORY = {
    "InstanceTypes": ["g5.xlarge"],
    "ProductDescriptions": ["Linux/UNIX"],
    "StartTime": AT,
    "MaxResults": 1000,
}
ASKED = {"instance_types": ("g5.xlarge",), "products": ("Linux/UNIX",), "at": AT.timestamp()}
TEMPLATE = {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "one", "CreateTime": AT}
RECEIVED = {
    "QueueUrl": "https://sqs/q",
    "MaxNumberOfMessages": 10,
    "WaitTimeSeconds": 20,
    "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
}
DELETED = {
    "QueueUrl": "https://sqs/q",
    "Entries": [{"Id": "0", "ReceiptHandle": "r-0"}, {"Id": "1", "ReceiptHandle": "r-1"}],
}


def failed(number: int, code: str, message: str | None = None) -> dict[str, Any]:
    said = {} if message is None else {"Message": message}
    return {"Id": str(number), "Code": code, "SenderFault": True, **said}


ON_DEMAND_FILTERS = {
    "regionCode": "eu-west-1",
    "instanceType": "g5.xlarge",
    "operatingSystem": "Linux",
    "licenseModel": "No License required",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "tenancy": "Shared",
    "productFamily": "Compute Instance",
}


def products(**filters: str) -> dict[str, Any]:
    """A request for the on-demand prices of an instance type."""
    wanted = ON_DEMAND_FILTERS | filters
    return {
        "ServiceCode": "AmazonEC2",
        "Filters": [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in wanted.items()],
        "MaxResults": 100,
    }


def listed(name: str, system: str, *dollars: str) -> str:
    """An item of the price list, as the Pricing API returns it: a text of JSON."""
    dimensions = {str(n): {"pricePerUnit": {"USD": text}} for n, text in enumerate(dollars)}
    attributes = {"instanceType": name, "operatingSystem": system}
    terms = {"OnDemand": {"one": {"priceDimensions": dimensions}}}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms})


IN_IRELAND = {"region": "eu-west-1", "instance_type": "g5.xlarge", "os": "linux"}
METAL = {**IN_IRELAND, "instance_type": "g4dn.metal", "os": "windows"}
SUBNET = {"SubnetId": "subnet-a", "AvailabilityZone": "us-east-1a", "AvailableIpAddressCount": 250}
QUOTAS = {"ServiceCode": "ec2", "MaxResults": 100}
TAIL = {"id": "i-1", "most": 4, "latest": True}

# The operation, its service, its arguments, the request, the answer, and what is made of it.
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any], object]] = [
    (
        "CreateFleet",
        "ec2",
        FLEET,
        FLEET,
        LAUNCHED,
        (
            [
                ("i-1", "g5.xlarge", "us-east-1a", "spot"),
                ("i-2", "g5.xlarge", "us-east-1b", "spot"),
                ("i-3", "g5.xlarge", "", "spot"),
            ],
            [
                ("InsufficientInstanceCapacity", "none left", "g6.xlarge", "us-east-1a"),
                ("", "", "", ""),
            ],
        ),
    ),
    (
        "DescribeInstances",
        "ec2",
        {"filter": "tag:f", "values": ("x",), "size": 9, **SECOND},
        {**LISTED, "NextToken": "p1"},
        {"Reservations": [{"Instances": [INSTANCE]}, {"Instances": [BARE]}], **NEXT},
        (
            [
                (
                    *("i-1", "terminated", "g5.xlarge", "us-east-1a", "spot", "windows", "ami-1"),
                    *("2026-11-22T10:00:00Z", "Server.Gone: it left", "the installation"),
                    *("the sku", "the launch-request", "the fleet", "dedicated", 8, "Server.Gone"),
                    "cr-1",
                ),
                (
                    *("i-2", "running", "g5.xlarge", "", "on-demand", "", ""),
                    *("2026-11-22T10:00:00Z", "", "", "", "", "", "", 0, "", ""),
                ),
            ],
            "p2",
        ),
    ),
    (
        "DescribeCapacityReservations",
        "ec2",
        SECOND,
        {"MaxResults": 1000, "NextToken": "p1"},
        {
            "CapacityReservations": [
                {
                    "CapacityReservationId": "cr-1",
                    "InstanceType": "p5.48xlarge",
                    "InstancePlatform": "Linux/UNIX",
                    "AvailabilityZone": "us-east-1a",
                    "TotalInstanceCount": 4,
                    "AvailableInstanceCount": 1,
                    "State": "active",
                },
                {
                    "CapacityReservationId": "cr-2",
                    "InstanceType": "p5.48xlarge",
                    "InstancePlatform": "Linux/UNIX",
                    "AvailabilityZone": "us-east-1a",
                    "TotalInstanceCount": 4,
                    "State": "scheduled",
                    "ReservationType": "capacity-block",
                    "EndDate": AT,
                },
            ],
            **NEXT,
        },
        (
            [
                ("cr-1", "p5.48xlarge", "us-east-1a", "Linux/UNIX", "active", 4, "default", 0.0),
                (
                    *("cr-2", "p5.48xlarge", "us-east-1a", "Linux/UNIX", "scheduled", 4),
                    *("capacity-block", AT.timestamp()),
                ),
            ],
            "p2",
        ),
    ),
    (
        "DescribeInstanceTypeOfferings",
        "ec2",
        {"zones": ("us-east-1a",), **SECOND},
        {**OFFERED, "NextToken": "p1"},
        {
            "InstanceTypeOfferings": [{"InstanceType": "g5.xlarge", "Location": "us-east-1a"}],
            **NEXT,
        },
        ([("g5.xlarge", "us-east-1a")], "p2"),
    ),
    (
        "DescribeImages",
        "ec2",
        {"owner": "self", "name": "gpu*", **SECOND},
        {**IMAGES, "NextToken": "p1"},
        {"Images": [IMAGE, {"ImageId": "ami-2"}], **NEXT},
        (
            [
                (
                    *("ami-1", "gpu", "2026-11-22T10:00:00.000Z", "x86_64", "/dev/sda1", 30),
                    (("/dev/sdb", 7),),
                ),
                ("ami-2", "", "", "", "", 0, ()),
            ],
            "p2",
        ),
    ),
    (
        "CreateLaunchTemplate",
        "ec2",
        {"name": "one", "data": {"ImageId": "ami-1"}, "tags": [{"Key": "a", "Value": "1"}]},
        {
            "LaunchTemplateName": "one",
            "LaunchTemplateData": {"ImageId": "ami-1"},
            "TagSpecifications": [
                {"ResourceType": "launch-template", "Tags": [{"Key": "a", "Value": "1"}]}
            ],
        },
        {"LaunchTemplate": {"LaunchTemplateId": "lt-1"}},
        "lt-1",
    ),
    (
        "DescribeLaunchTemplates",
        "ec2",
        {"name": "one"},
        {"LaunchTemplateNames": ["one"]},
        {"LaunchTemplates": [TEMPLATE]},
        ([("lt-1", "one", AT.timestamp())], None),
    ),
    (
        "DescribeLaunchTemplates",
        "ec2",
        {**TAGS, **SECOND},
        {**tagged(200), "NextToken": "p1"},
        {"LaunchTemplates": [], **NEXT},
        ([], "p2"),
    ),
    (
        "DescribeVolumes",
        "ec2",
        {**TAGS, **FIRST},
        {"Filters": [*tagged(500)["Filters"], AVAILABLE], "MaxResults": 500},
        {"Volumes": [{"VolumeId": "vol-1"}], **NEXT},
        ([("vol-1",)], "p2"),
    ),
    (
        "DescribeSpotPriceHistory",
        "ec2",
        {**ASKED, **SECOND},
        {**HISTORY, "NextToken": "p1"},
        {"SpotPriceHistory": [SPOT], **NEXT},
        ([("g5.xlarge", "us-east-1a", "Linux/UNIX", "0.4", AT.timestamp())], "p2"),
    ),
    (
        "ReceiveMessage",
        "sqs",
        {"url": "https://sqs/q", "wait": 20, "most": 10},
        RECEIVED,
        {
            "Messages": [
                {
                    "MessageId": "m-1",
                    "ReceiptHandle": "r-1",
                    "Body": "{}",
                    "Attributes": {"ApproximateReceiveCount": "3"},
                },
                {"MessageId": "m-2", "ReceiptHandle": "r-2"},
            ]
        },
        [("m-1", "r-1", "{}", 3), ("m-2", "r-2", "", 1)],
    ),
    (
        "DeleteMessageBatch",
        "sqs",
        {"url": "https://sqs/q", "receipts": ("r-0", "r-1")},
        DELETED,
        {
            "Successful": [],
            "Failed": [
                failed(0, "ReceiptHandleIsInvalid", "old"),
                failed(1, "InternalError", "later"),
                failed(1, "InternalError"),
            ],
        },
        [("InternalError", "later"), ("InternalError", "")],
    ),
    ("GetCallerIdentity", "sts", {}, {}, {"Account": "123456789012"}, "123456789012"),
    (
        "DescribeSubnets",
        "ec2",
        {"ids": ("subnet-a",)},
        {"SubnetIds": ["subnet-a"]},
        {"Subnets": [SUBNET]},
        [("subnet-a", "us-east-1a", 250)],
    ),
    ("DeleteLaunchTemplate", "ec2", {"id": "lt-1"}, {"LaunchTemplateId": "lt-1"}, {}, None),
    ("DeleteVolume", "ec2", {"id": "vol-1"}, {"VolumeId": "vol-1"}, {}, None),
    (
        "TerminateInstances",
        "ec2",
        {"ids": ("i-1", "i-2")},
        {"InstanceIds": ["i-1", "i-2"]},
        {},
        None,
    ),
    (
        "GetConsoleOutput",
        "ec2",
        TAIL,
        {"InstanceId": "i-1", "Latest": True},
        {"InstanceId": "i-1", "Output": "panic"},
        "anic",
    ),
    (
        "GetConsoleOutput",
        "ec2",
        {**TAIL, "latest": False},
        {"InstanceId": "i-1", "Latest": False},
        {"InstanceId": "i-1"},
        "",
    ),
    (
        "ListServiceQuotas",
        "service-quotas",
        FIRST,
        QUOTAS,
        {
            "Quotas": [
                {"QuotaCode": "L-1", "Value": 64.0},
                {
                    "QuotaCode": "L-2",
                    "ErrorReason": {"ErrorCode": "SERVICE_QUOTA_NOT_AVAILABLE_ERROR"},
                },
            ],
            **NEXT,
        },
        ([("L-1", 64.0)], "p2"),
    ),
    (
        "ListServiceQuotas",
        "service-quotas",
        SECOND,
        {**QUOTAS, "NextToken": "p1"},
        {"Quotas": []},
        ([], None),
    ),
    (
        "GetProducts",
        "pricing",
        {**IN_IRELAND, **FIRST},
        products(),
        {
            "PriceList": [
                listed("g5.xlarge", "Linux", "1.006", "0.0"),
                listed("g5.xlarge", "Linux", "none"),
                "[]",
                "{",
            ],
            **NEXT,
        },
        ([("g5.xlarge", "linux", 1.006)], "p2"),
    ),
    (
        "GetProducts",
        "pricing",
        {**METAL, **SECOND},
        {
            **products(
                instanceType="g4dn.metal",
                operatingSystem="Windows",
                tenancy="Dedicated",
                productFamily="Compute Instance (bare metal)",
            ),
            "NextToken": "p1",
        },
        {},
        ([], None),
    ),
    (
        "DescribeVolumes",
        "ec2",
        {**TAGS, **SECOND},
        {"Filters": [*tagged(500)["Filters"], AVAILABLE], "MaxResults": 500, "NextToken": "p1"},
        {"Volumes": []},
        ([], None),
    ),
    (
        "DescribeSpotPriceHistory",
        "ec2",
        {**ASKED, **FIRST},
        HISTORY,
        {"SpotPriceHistory": [{**BARE_SPOT}]},
        ([("g5.xlarge", "", "", "0.4", AT.timestamp())], None),
    ),
    ("ReceiveMessage", "sqs", {"url": "https://sqs/q", "wait": 20, "most": 10}, RECEIVED, {}, []),
    (
        "DeleteMessageBatch",
        "sqs",
        {"url": "https://sqs/q", "receipts": ("r-0", "r-1")},
        DELETED,
        {"Successful": [], "Failed": []},
        [],
    ),
    ("CreateFleet", "ec2", FLEET, FLEET, {}, ([], [])),
]


@pytest.mark.parametrize(
    ("operation", "service", "arguments", "request_", "answer", "made"),
    CASES,
    ids=[one[0] for one in CASES],
)
def test_requests_have_their_arguments_and_answers_are_reduced(
    operation: str,
    service: str,
    arguments: Mapping[str, Any],
    request_: dict[str, Any],
    answer: dict[str, Any],
    made: object,
) -> None:
    client = boto3.client(
        service,  # type: ignore[call-overload]
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    methods = {api: name for name, api in client.meta.method_to_api_mapping.items()}
    with Stubber(client) as stub:
        stub.add_response(methods[operation], answer, request_)
        assert Clients(lambda _: client).call(operation, arguments) == made
        stub.assert_no_pending_responses()
    client.close()


def test_every_operation_is_tested() -> None:
    assert {one[0] for one in CASES} == set(OPERATIONS)


@pytest.mark.parametrize(
    ("response", "code", "message", "status", "after"),
    [
        ({}, "", "", 0, None),
        (
            {
                "Error": {"Code": "RequestLimitExceeded", "Message": "slow down"},
                "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "7"}},
            },
            "RequestLimitExceeded",
            "slow down",
            503,
            "7",
        ),
    ],
)
def test_a_refusal_is_reduced_to_code_message_status_and_retry_after(
    response: dict[str, Any], code: str, message: str, status: int, after: str | None
) -> None:
    def refuse(_: str) -> Any:
        raise ClientError(response, "GetCallerIdentity")  # type: ignore[arg-type]

    call = {"operation": "GetCallerIdentity", "arguments": {}}
    refusal = answer_of(Clients(refuse), Arrived(), call)
    assert refusal == {
        "error": code,
        "message": message,
        "sent": True,
        "status": status,
        "retry_after": after,
    }


class Arrived(SentRequests):
    """Says that every request arrived."""

    def may_have_arrived(self, error: Exception) -> bool:
        return True
