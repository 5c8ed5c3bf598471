"""The calls to AWS about subnets, images, launch templates, volumes and quotas.

Runs in the worker process only. Each function sends one request, without retries.
"""

from typing import Any

from autoscaler.providers.ec2.tags import PUBLISHED, RECIPE_PREFIX
from autoscaler.providers.ec2.worker.clients import Arguments, Clients
from autoscaler.providers.ec2.worker.rows import (
    ImageRow,
    QuotaRow,
    ReservationRow,
    SubnetRow,
    TemplateRow,
)


def get_caller_identity(clients: Clients, _: Arguments) -> str:
    """Return the account's id."""
    return str(clients.sts.get_caller_identity()["Account"])


def describe_subnets(clients: Clients, arguments: Arguments) -> list[SubnetRow]:
    """Return the subnets with these `ids`."""
    answer = clients.ec2.describe_subnets(SubnetIds=list(arguments["ids"]))
    return [
        SubnetRow(one["SubnetId"], one["AvailabilityZone"], one["AvailableIpAddressCount"])
        for one in answer["Subnets"]
    ]


def describe_instance_type_offerings(
    clients: Clients, arguments: Arguments
) -> tuple[list[tuple[str, str]], str | None]:
    """Return one page of the instance types that `zones` offer, as (instance type, zone)."""
    parameters: dict[str, Any] = {
        "LocationType": "availability-zone",
        "Filters": [{"Name": "location", "Values": list(arguments["zones"])}],
        "MaxResults": 1000,
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.ec2.describe_instance_type_offerings(**parameters)
    offered: list[tuple[str, str]] = [
        (one["InstanceType"], one["Location"]) for one in answer["InstanceTypeOfferings"]
    ]
    return offered, answer.get("NextToken")


def describe_capacity_reservations(
    clients: Clients, arguments: Arguments
) -> tuple[list[ReservationRow], str | None]:
    """Return one page of the account's capacity reservations, and of those that are shared with it.

    Not by id: EC2 refuses the whole call if one of them does not exist.
    """
    parameters: dict[str, Any] = {"MaxResults": 1000}
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.ec2.describe_capacity_reservations(**parameters)
    rows = [
        ReservationRow(
            one["CapacityReservationId"],
            one["InstanceType"],
            one.get("AvailabilityZone", ""),
            one["InstancePlatform"],
            one["State"],
            one["TotalInstanceCount"],
            one.get("ReservationType") or "default",
            one["EndDate"].timestamp() if "EndDate" in one else 0.0,
        )
        for one in answer["CapacityReservations"]
    ]
    return rows, answer.get("NextToken")


def describe_images(clients: Clients, arguments: Arguments) -> tuple[list[ImageRow], str | None]:
    """Return one page of the available images of `owner` whose name matches the glob `name`.

    Leaves out images of this project's recipes that have not passed their test.
    """
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
    shown = [one for one in answer["Images"] if not _awaits_its_test(one)]
    return [_image(one) for one in shown], answer.get("NextToken")


def _awaits_its_test(one: Any) -> bool:
    """Return whether an image has a name of the recipes in ami/, and not the tag of a passed test.

    By the name, because Packer adds tags seconds after EC2 shows an image as available.
    """
    tags = {tag["Key"] for tag in one.get("Tags", ())}
    return (one.get("Name") or "").startswith(RECIPE_PREFIX) and PUBLISHED not in tags


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
    """Create a launch template; return its id."""
    answer = clients.ec2.create_launch_template(
        LaunchTemplateName=arguments["name"],
        LaunchTemplateData=arguments["data"],
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": arguments["tags"]}],
    )
    return answer["LaunchTemplate"]["LaunchTemplateId"]


def describe_launch_templates(
    clients: Clients, arguments: Arguments
) -> tuple[list[TemplateRow], str | None]:
    """Return the launch template with this `name`, or one page of those with all of these `tags`.

    A tag matches if it has one of the values given for it.
    """
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
    """Delete a launch template; its machines do not change."""
    clients.ec2.delete_launch_template(LaunchTemplateId=arguments["id"])


def describe_volumes(clients: Clients, arguments: Arguments) -> tuple[list[tuple[str]], str | None]:
    """Return one page of the volumes with all of these `tags` that are attached to no instance.

    A tag matches if it has one of the values given for it.
    """
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
    """Return one page of EC2's quotas with the values applied to the account.

    Leaves out quotas without a value, which have an ErrorReason instead (Service Quotas API
    Reference, ServiceQuota).
    """
    parameters: dict[str, Any] = {"ServiceCode": "ec2", "MaxResults": 100}
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.quotas.list_service_quotas(**parameters)
    rows = [QuotaRow(one["QuotaCode"], one["Value"]) for one in answer["Quotas"] if "Value" in one]
    return rows, answer.get("NextToken")


def _tagged(arguments: Arguments, size: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "Filters": [
            {"Name": f"tag:{tag}", "Values": list(values)}
            for tag, values in arguments["tags"].items()
        ],
        "MaxResults": size,
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    return parameters
