"""The calls to AWS that this provider makes, each reduced to the small tuples it needs.

Runs in the worker process only: one request each, never a retry, never a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from autoscaler.providers.ec2.rows import (
    MAX_BODY,
    MAX_TEXT,
    FleetErrorRow,
    FleetInstanceRow,
    ImageRow,
    InstanceRow,
    MessageRow,
    QuotaRow,
    SubnetRow,
    TemplateRow,
)
from autoscaler.providers.ec2.tags import FIELDS

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

Arguments = Mapping[str, Any]


class Clients:
    """The AWS clients, made on first use; each is safe to use from several threads."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: dict[str, Any] = {}

    @property
    def ec2(self) -> EC2Client:
        """EC2's client."""
        client: EC2Client = self._client("ec2")
        return client

    @property
    def sts(self) -> Any:
        """STS's client."""
        return self._client("sts")

    @property
    def quotas(self) -> Any:
        """Service Quotas' client."""
        return self._client("service-quotas")

    @property
    def sqs(self) -> Any:
        """SQS's client."""
        return self._client("sqs")

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._made:
                self._made[service] = self._make(service)
            return self._made[service]


def get_caller_identity(clients: Clients, _: Arguments) -> str:
    """The account's id."""
    return str(clients.sts.get_caller_identity()["Account"])


def describe_subnets(clients: Clients, arguments: Arguments) -> list[SubnetRow]:
    """The subnets named in `ids`."""
    answer = clients.ec2.describe_subnets(SubnetIds=list(arguments["ids"]))
    return [
        SubnetRow(one["SubnetId"], one["AvailabilityZone"], one["AvailableIpAddressCount"])
        for one in answer["Subnets"]
    ]


def describe_images(clients: Clients, arguments: Arguments) -> tuple[list[ImageRow], str | None]:
    """One page of the available images with a name like `name` and of `owner`."""
    parameters: dict[str, Any] = {
        "Owners": [arguments["owner"]],
        "Filters": [
            {"Name": "name", "Values": [arguments["name"]]},
            {"Name": "state", "Values": ["available"]},
        ],
        "MaxResults": 500,
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.ec2.describe_images(**parameters)
    return [_image(one) for one in answer["Images"]], answer.get("NextToken")


def _image(one: Any) -> ImageRow:
    root = one.get("RootDeviceName") or ""
    disks = {
        mapping["DeviceName"]: int(mapping["Ebs"].get("VolumeSize") or 0)
        for mapping in one.get("BlockDeviceMappings", ())
        if "Ebs" in mapping
    }
    return ImageRow(
        id=one["ImageId"],
        name=one.get("Name") or "",
        created=one.get("CreationDate") or "",
        architecture=one.get("Architecture") or "",
        root_device=root,
        root_gb=disks.pop(root, 0),
        other_disks=tuple(sorted(disks.items())),
    )


def create_launch_template(clients: Clients, arguments: Arguments) -> str:
    """Make a launch template; its id."""
    answer = clients.ec2.create_launch_template(
        LaunchTemplateName=arguments["name"],
        LaunchTemplateData=arguments["data"],
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": arguments["tags"]}],
    )
    return answer["LaunchTemplate"]["LaunchTemplateId"]


def describe_launch_templates(
    clients: Clients, arguments: Arguments
) -> tuple[list[TemplateRow], str | None]:
    """The launch template of a `name`; or one page of those with all of these `tags`."""
    parameters: dict[str, Any]
    if "name" in arguments:
        parameters = {"LaunchTemplateNames": [arguments["name"]]}
    else:
        parameters = _tagged(arguments, 200)
    answer = clients.ec2.describe_launch_templates(**parameters)
    rows = [
        TemplateRow(
            one["LaunchTemplateId"], one["LaunchTemplateName"], one["CreateTime"].timestamp()
        )
        for one in answer["LaunchTemplates"]
    ]
    return rows, answer.get("NextToken")


def delete_launch_template(clients: Clients, arguments: Arguments) -> None:
    """Delete a launch template; machines that came of it stay as they are."""
    clients.ec2.delete_launch_template(LaunchTemplateId=arguments["id"])


def describe_volumes(clients: Clients, arguments: Arguments) -> tuple[list[tuple[str]], str | None]:
    """One page of the volumes with all of these `tags` that no instance has."""
    parameters = _tagged(arguments, 500)
    parameters["Filters"].append({"Name": "status", "Values": ["available"]})
    answer = clients.ec2.describe_volumes(**parameters)
    return [(one["VolumeId"],) for one in answer["Volumes"]], answer.get("NextToken")


def delete_volume(clients: Clients, arguments: Arguments) -> None:
    """Delete a volume."""
    clients.ec2.delete_volume(VolumeId=arguments["id"])


def list_service_quotas(
    clients: Clients, arguments: Arguments
) -> tuple[list[QuotaRow], str | None]:
    """One page of EC2's quotas as they are applied to the account."""
    parameters: dict[str, Any] = {"ServiceCode": "ec2", "MaxResults": 100}
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.quotas.list_service_quotas(**parameters)
    rows = [QuotaRow(one["QuotaCode"], one["Value"]) for one in answer["Quotas"]]
    return rows, answer.get("NextToken")


def _tagged(arguments: Arguments, size: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "Filters": [
            {"Name": f"tag:{tag}", "Values": [value]} for tag, value in arguments["tags"].items()
        ],
        "MaxResults": size,
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    return parameters


def create_fleet(
    clients: Clients, arguments: Arguments
) -> tuple[list[FleetInstanceRow], list[FleetErrorRow]]:
    """Send a CreateFleet request as it is; the machines and the errors of its overrides."""
    answer = clients.ec2.create_fleet(**arguments)
    zones = {
        override["SubnetId"]: override["AvailabilityZone"]
        for config in arguments["LaunchTemplateConfigs"]
        for override in config["Overrides"]
    }
    machines = []
    for group in answer.get("Instances", ()):
        _, zone = _override(group, zones)
        machines += [
            FleetInstanceRow(one, group["InstanceType"], zone, group["Lifecycle"])
            for one in group["InstanceIds"]
        ]
    errors = []
    for error in answer.get("Errors", ()):
        instance_type, zone = _override(error, zones)
        message = error.get("ErrorMessage", "")[:MAX_TEXT]
        errors.append(FleetErrorRow(error.get("ErrorCode", ""), message, instance_type, zone))
    return machines, errors


def _override(part: Any, zones: Mapping[str, str]) -> tuple[str, str]:
    override = part.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    zone = override.get("AvailabilityZone") or zones.get(override.get("SubnetId", ""), "")
    return override.get("InstanceType", ""), zone


def terminate_instances(clients: Clients, arguments: Arguments) -> None:
    """Ask for these machines to be terminated."""
    clients.ec2.terminate_instances(InstanceIds=list(arguments["ids"]))


def describe_instances(
    clients: Clients, arguments: Arguments
) -> tuple[list[InstanceRow], str | None]:
    """One page, of at most `size`, of the machines with any of `values` in the filter `filter`."""
    parameters: dict[str, Any] = {
        "Filters": [{"Name": arguments["filter"], "Values": list(arguments["values"])}],
        "MaxResults": arguments["size"],
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.ec2.describe_instances(**parameters)
    rows = [_instance(one) for group in answer["Reservations"] for one in group["Instances"]]
    return rows, answer.get("NextToken")


def _instance(one: Any) -> InstanceRow:
    tags = {FIELDS[tag["Key"]]: tag["Value"] for tag in one.get("Tags", ()) if tag["Key"] in FIELDS}
    reason, cpus = one.get("StateReason", {}), one.get("CpuOptions", {})
    return InstanceRow(
        id=one["InstanceId"],
        state=one["State"]["Name"],
        instance_type=one["InstanceType"],
        zone=one.get("Placement", {}).get("AvailabilityZone", ""),
        lifecycle=one.get("InstanceLifecycle") or "on-demand",
        platform=(one.get("Platform") or "").lower(),
        image=one.get("ImageId", ""),
        launch_time=_text(one["LaunchTime"]),
        reason=_reason(reason.get("Code", ""), reason.get("Message", "")),
        installation=tags.get("installation", ""),
        sku=tags.get("sku", ""),
        call=tags.get("call", ""),
        fleet=tags.get("fleet", ""),
        tenancy=one.get("Placement", {}).get("Tenancy", ""),
        vcpus=cpus.get("CoreCount", 0) * cpus.get("ThreadsPerCore", 1),
        ended_by=reason.get("Code", "")[:MAX_TEXT],
    )


def receive_message(clients: Clients, arguments: Arguments) -> list[MessageRow]:
    """Up to `most` messages of the queue `url`; `wait` is whole seconds for the first."""
    answer = clients.sqs.receive_message(
        QueueUrl=arguments["url"],
        MaxNumberOfMessages=arguments["most"],
        WaitTimeSeconds=arguments["wait"],
        MessageSystemAttributeNames=["ApproximateReceiveCount"],
    )
    return [
        MessageRow(
            one["MessageId"],
            one["ReceiptHandle"],
            # One character more than is read: it shows that there was more.
            one.get("Body", "")[: MAX_BODY + 1],
            int(one.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
        )
        for one in answer.get("Messages", ())
    ]


def delete_message_batch(clients: Clients, arguments: Arguments) -> list[tuple[str, str]]:
    """Take the messages of these `receipts` off the queue `url`; what was refused, and why.

    A receipt that is not known any more is no refusal: the message comes again, or is gone.
    """
    entries = [
        {"Id": str(number), "ReceiptHandle": receipt}
        for number, receipt in enumerate(arguments["receipts"])
    ]
    answer = clients.sqs.delete_message_batch(QueueUrl=arguments["url"], Entries=entries)
    return [
        (one["Code"], one.get("Message", "")[:MAX_TEXT])
        for one in answer.get("Failed", ())
        if not one["Code"].startswith("ReceiptHandle")
    ]


def _reason(code: str, message: str) -> str:
    # EC2 repeats the code at the start of most messages.
    text = message if message.startswith(code) else f"{code}: {message}"
    return text[:MAX_TEXT]


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


OPERATIONS: Mapping[str, Callable[[Clients, Arguments], object]] = {
    "CreateFleet": create_fleet,
    "CreateLaunchTemplate": create_launch_template,
    "DeleteLaunchTemplate": delete_launch_template,
    "DeleteMessageBatch": delete_message_batch,
    "DeleteVolume": delete_volume,
    "DescribeImages": describe_images,
    "DescribeInstances": describe_instances,
    "DescribeLaunchTemplates": describe_launch_templates,
    "DescribeSubnets": describe_subnets,
    "DescribeVolumes": describe_volumes,
    "GetCallerIdentity": get_caller_identity,
    "ListServiceQuotas": list_service_quotas,
    "ReceiveMessage": receive_message,
    "TerminateInstances": terminate_instances,
}
"""Every operation by the name of its API."""
