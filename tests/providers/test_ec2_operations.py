"""Each request and answer of the worker process, checked against the service models of botocore."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from autoscaler.providers.ec2.clients import Clients
from autoscaler.providers.ec2.operations import OPERATIONS

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
                ),
                (
                    *("i-2", "running", "g5.xlarge", "", "on-demand", "", ""),
                    *("2026-11-22T10:00:00Z", "", "", "", "", "", "", 0, ""),
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
]


@pytest.mark.parametrize(
    ("operation", "service", "arguments", "request_", "answer", "made"),
    CASES,
    ids=[one[0] for one in CASES],
)
def test_a_request_says_what_it_was_asked_for_and_the_answer_is_reduced(
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
        assert OPERATIONS[operation](Clients(lambda _: client), arguments) == made
        stub.assert_no_pending_responses()
    client.close()
