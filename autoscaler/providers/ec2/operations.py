"""The calls to AWS that this provider makes, each reduced to the small tuples it needs.

Runs in the worker process only: one request each, never a retry, never a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from autoscaler.providers.ec2.rows import (
    MAX_TEXT,
    FleetErrorRow,
    FleetInstanceRow,
    ImageRow,
    InstanceRow,
    SubnetRow,
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
    sizes = [
        mapping["Ebs"].get("VolumeSize") or 0
        for mapping in one.get("BlockDeviceMappings", ())
        if mapping.get("DeviceName") == root and "Ebs" in mapping
    ]
    return ImageRow(
        id=one["ImageId"],
        name=one.get("Name") or "",
        created=one.get("CreationDate") or "",
        architecture=one.get("Architecture") or "",
        root_device=root,
        root_gb=max(sizes, default=0),
    )


def create_launch_template(clients: Clients, arguments: Arguments) -> str:
    """Make a launch template; its id."""
    answer = clients.ec2.create_launch_template(
        LaunchTemplateName=arguments["name"],
        LaunchTemplateData=arguments["data"],
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": arguments["tags"]}],
    )
    return answer["LaunchTemplate"]["LaunchTemplateId"]


def describe_launch_templates(clients: Clients, arguments: Arguments) -> str:
    """The id of the launch template with this name."""
    answer = clients.ec2.describe_launch_templates(LaunchTemplateNames=[arguments["name"]])
    return answer["LaunchTemplates"][0]["LaunchTemplateId"]


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
    """One page, of at most `size`, of the machines whose tag `tag` has the value `value`."""
    parameters: dict[str, Any] = {
        "Filters": [{"Name": f"tag:{arguments['tag']}", "Values": [arguments["value"]]}],
        "MaxResults": arguments["size"],
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.ec2.describe_instances(**parameters)
    rows = [_instance(one) for group in answer["Reservations"] for one in group["Instances"]]
    return rows, answer.get("NextToken")


def _instance(one: Any) -> InstanceRow:
    tags = {FIELDS[tag["Key"]]: tag["Value"] for tag in one["Tags"] if tag["Key"] in FIELDS}
    reason = one.get("StateReason", {})
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
    )


def _reason(code: str, message: str) -> str:
    # EC2 repeats the code at the start of most messages.
    text = message if message.startswith(code) else f"{code}: {message}"
    return text[:MAX_TEXT]


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


OPERATIONS: Mapping[str, Callable[[Clients, Arguments], object]] = {
    "CreateFleet": create_fleet,
    "CreateLaunchTemplate": create_launch_template,
    "DescribeImages": describe_images,
    "DescribeInstances": describe_instances,
    "DescribeLaunchTemplates": describe_launch_templates,
    "DescribeSubnets": describe_subnets,
    "GetCallerIdentity": get_caller_identity,
    "TerminateInstances": terminate_instances,
}
"""Every operation by the name of its API."""
