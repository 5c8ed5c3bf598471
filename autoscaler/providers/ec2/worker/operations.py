"""The calls to AWS: what each sends for its arguments, and what it keeps of the answer.

The worker process makes the calls, and sends each request once, without retries. The controller reads the names
of the APIs here, so this module does not import boto3.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from autoscaler.providers.ec2.tags import FIELDS, PUBLISHED, RECIPE_PREFIX
from autoscaler.providers.ec2.worker.rows import (
    MAX_BODY,
    MAX_TEXT,
    FleetErrorRow,
    FleetInstanceRow,
    ImageRow,
    InstanceRow,
    MessageRow,
    PriceRow,
    ReservationRow,
    SpotPriceRow,
    TemplateRow,
)

Arguments = Mapping[str, Any]
"""The arguments of an operation: JSON values by name."""


class Operation(NamedTuple):
    """One API of a `service`, by boto3's name.

    `parameters` returns boto3's for a call's arguments, `result` what is kept of an answer to them. With a
    `page_size` the API lists in pages: the argument `page` is the token of a page, or None for the first one,
    and the result of the call is the page's rows with the token of the next page. One that `changes` something
    is sent only while the controller leads.
    """

    parameters: Callable[[Arguments], dict[str, Any]]
    result: Callable[[Any, Arguments], object]
    service: str = "ec2"
    page_size: int = 0
    changes: bool = False


def _fleet(answer: Any, arguments: Arguments) -> tuple[list[FleetInstanceRow], list[FleetErrorRow]]:
    """Return the machines, and the errors of the request's overrides."""
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


def _instance(one: Any) -> InstanceRow:
    tags = {FIELDS[tag["Key"]]: tag["Value"] for tag in one.get("Tags", ()) if tag["Key"] in FIELDS}
    reason, cpus = one.get("StateReason", {}), one.get("CpuOptions", {})
    code, message = reason.get("Code", ""), reason.get("Message", "")
    target = one.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return InstanceRow(
        id=one["InstanceId"],
        state=one["State"]["Name"],
        instance_type=one["InstanceType"],
        zone=one.get("Placement", {}).get("AvailabilityZone", ""),
        lifecycle=one.get("InstanceLifecycle") or "on-demand",
        platform=(one.get("Platform") or "").lower(),
        image=one.get("ImageId", ""),
        launch_time=one["LaunchTime"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        # EC2 repeats the code at the start of most messages.
        reason=(message if message.startswith(code) else f"{code}: {message}")[:MAX_TEXT],
        installation=tags.get("installation", ""),
        sku=tags.get("sku", ""),
        launch_request=tags.get("launch_request", ""),
        fleet=tags.get("fleet", ""),
        tenancy=one.get("Placement", {}).get("Tenancy", ""),
        vcpus=cpus.get("CoreCount", 0) * cpus.get("ThreadsPerCore", 1),
        ended_by=code[:MAX_TEXT],
        reservation=target.get("CapacityReservationId", ""),
    )


def _reservation(one: Any) -> ReservationRow:
    return ReservationRow(
        one["CapacityReservationId"],
        one["InstanceType"],
        one.get("AvailabilityZone", ""),
        one["InstancePlatform"],
        one["State"],
        one["TotalInstanceCount"],
        one.get("ReservationType") or "default",
        one["EndDate"].timestamp() if "EndDate" in one else 0.0,
    )


def _is_usable(one: Any) -> bool:
    """Return False for an image with a name of the recipes in ami/, and without the tag of a passed test.

    By the name, because Packer adds tags seconds after EC2 shows an image as available.
    """
    tags = {tag["Key"] for tag in one.get("Tags", ())}
    return PUBLISHED in tags or not (one.get("Name") or "").startswith(RECIPE_PREFIX)


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


def _template(one: Any) -> TemplateRow:
    created = one["CreateTime"].timestamp()
    return TemplateRow(one["LaunchTemplateId"], one["LaunchTemplateName"], created)


def _message(one: Any) -> MessageRow:
    # One character more than the limit, so that the parser sees that the body is too long.
    body = one.get("Body", "")[: MAX_BODY + 1]
    receives = int(one.get("Attributes", {}).get("ApproximateReceiveCount", "1"))
    return MessageRow(one["MessageId"], one["ReceiptHandle"], body, receives)


def _refused_deletions(answer: Any, _: Arguments) -> list[tuple[str, str]]:
    """Return refusals with reasons. An unknown receipt is none: the message was deleted, or comes again."""
    return [
        (one["Code"], one.get("Message", "")[:MAX_TEXT])
        for one in answer.get("Failed", ())
        if not one["Code"].startswith("ReceiptHandle")
    ]


def _product(arguments: Arguments) -> dict[str, Any]:
    """Return the request for the on-demand price of an `instance_type` in a `region` for an `os`.

    The filters are Karpenter's (pkg/providers/pricing). AWS lists a Windows type a second time at the
    Linux price, for customers with their own licence (aws/aws-sdk-js#1819). It lists bare metal as
    dedicated.
    """
    metal = ".metal" in arguments["instance_type"]
    wanted = {
        "regionCode": arguments["region"],
        "instanceType": arguments["instance_type"],
        "operatingSystem": "Windows" if arguments["os"] == "windows" else "Linux",
        "licenseModel": "No License required",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Dedicated" if metal else "Shared",
        "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
    }
    filters = [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in wanted.items()]
    return {"ServiceCode": "AmazonEC2", "Filters": filters}


def _prices(item: str) -> Iterator[PriceRow]:
    """Return the prices above zero in one item, a JSON text; none if it has another format."""
    try:
        product: Any = json.loads(item)
        attributes = product["product"]["attributes"]
        kind, system = str(attributes["instanceType"]), str(attributes["operatingSystem"])
        for term in product["terms"]["OnDemand"].values():
            for dimension in term["priceDimensions"].values():
                dollars = float(dimension["pricePerUnit"]["USD"])
                if dollars > 0:
                    yield PriceRow(kind, system.lower(), dollars)
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _spot_price(one: Any) -> SpotPriceRow:
    return SpotPriceRow(
        one["InstanceType"],
        one.get("AvailabilityZone", ""),
        one.get("ProductDescription", ""),
        one["SpotPrice"],
        one["Timestamp"].timestamp(),
    )


def _filters(values: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": list(of)} for name, of in values.items()]


def _tagged(arguments: Arguments) -> list[dict[str, Any]]:
    """Return filters for all of these `tags`. A tag matches if it has one of the values given for it."""
    return _filters({f"tag:{tag}": values for tag, values in arguments["tags"].items()})


def _each(key: str, row: Callable[[Any], object]) -> Callable[[Any, Arguments], list[object]]:
    """Return what makes a row of each element of an answer's list `key`."""
    return lambda answer, _: [row(one) for one in answer[key]]


def _nothing(_answer: Any, _arguments: Arguments) -> None: ...


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "CreateFleet": Operation(dict, _fleet, changes=True),
        "CreateLaunchTemplate": Operation(
            lambda said: {
                "LaunchTemplateName": said["name"],
                "LaunchTemplateData": said["data"],
                "TagSpecifications": [{"ResourceType": "launch-template", "Tags": said["tags"]}],
            },
            lambda answer, _: answer["LaunchTemplate"]["LaunchTemplateId"],
            changes=True,
        ),
        "DeleteLaunchTemplate": Operation(
            lambda said: {"LaunchTemplateId": said["id"]}, _nothing, changes=True
        ),
        "DeleteMessageBatch": Operation(
            lambda said: {
                "QueueUrl": said["url"],
                "Entries": [
                    {"Id": str(number), "ReceiptHandle": receipt}
                    for number, receipt in enumerate(said["receipts"])
                ],
            },
            _refused_deletions,
            "sqs",
            changes=True,
        ),
        "DeleteVolume": Operation(lambda said: {"VolumeId": said["id"]}, _nothing, changes=True),
        # Not by id: EC2 refuses the whole call if one of the reservations does not exist.
        "DescribeCapacityReservations": Operation(
            lambda _: {}, _each("CapacityReservations", _reservation), page_size=1000
        ),
        "DescribeImages": Operation(
            lambda said: {
                "Owners": [said["owner"]],
                "Filters": _filters({"name": [said["name"]], "state": ["available"]}),
            },
            lambda answer, _: [_image(one) for one in answer["Images"] if _is_usable(one)],
            page_size=500,
        ),
        "DescribeInstanceTypeOfferings": Operation(
            lambda said: {
                "LocationType": "availability-zone",
                "Filters": _filters({"location": said["zones"]}),
            },
            _each("InstanceTypeOfferings", itemgetter("InstanceType", "Location")),
            page_size=1000,
        ),
        # The worker needs about 0.2 s to parse a page.
        "DescribeInstances": Operation(
            lambda said: {"Filters": _filters({said["filter"]: said["values"]})},
            lambda answer, _: [
                _instance(one) for group in answer["Reservations"] for one in group["Instances"]
            ],
            page_size=500,
        ),
        # The one with this `name`, or a page of those with these `tags`.
        "DescribeLaunchTemplates": Operation(
            lambda said: (
                {"LaunchTemplateNames": [said["name"]]}
                if "name" in said
                else {"Filters": _tagged(said)}
            ),
            _each("LaunchTemplates", _template),
            page_size=200,
        ),
        # Without an end time, EC2 returns the last change before the start time for each type, zone and product
        # (EC2 API Reference, DescribeSpotPriceHistory).
        "DescribeSpotPriceHistory": Operation(
            lambda said: {
                "InstanceTypes": list(said["instance_types"]),
                "ProductDescriptions": list(said["products"]),
                "StartTime": datetime.fromtimestamp(said["at"], UTC),
            },
            _each("SpotPriceHistory", _spot_price),
            page_size=1000,
        ),
        "DescribeSubnets": Operation(
            lambda said: {"SubnetIds": list(said["ids"])},
            _each("Subnets", itemgetter("SubnetId", "AvailabilityZone", "AvailableIpAddressCount")),
        ),
        # Those that are attached to no instance.
        "DescribeVolumes": Operation(
            lambda said: {"Filters": [*_tagged(said), *_filters({"status": ["available"]})]},
            _each("Volumes", lambda one: (one["VolumeId"],)),
            page_size=500,
        ),
        "GetCallerIdentity": Operation(dict, lambda answer, _: answer["Account"], "sts"),
        # The SDK has decoded the base64. Only the last `most` characters of up to 64 KiB are kept.
        "GetConsoleOutput": Operation(
            lambda said: {"InstanceId": said["id"], "Latest": said["latest"]},
            lambda answer, said: answer.get("Output", "")[-said["most"] :],
        ),
        "GetProducts": Operation(
            _product,
            lambda answer, _: [p for item in answer.get("PriceList", ()) for p in _prices(item)],
            "pricing",
            page_size=100,
        ),
        # A quota without a value has an ErrorReason instead (Service Quotas API Reference, ServiceQuota).
        "ListServiceQuotas": Operation(
            lambda _: {"ServiceCode": "ec2"},
            lambda answer, _: [
                (one["QuotaCode"], one["Value"]) for one in answer["Quotas"] if "Value" in one
            ],
            "service-quotas",
            page_size=100,
        ),
        # Waits `wait` whole seconds for the first message.
        "ReceiveMessage": Operation(
            lambda said: {
                "QueueUrl": said["url"],
                "MaxNumberOfMessages": said["most"],
                "WaitTimeSeconds": said["wait"],
                "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
            },
            lambda answer, _: [_message(one) for one in answer.get("Messages", ())],
            "sqs",
        ),
        "TerminateInstances": Operation(
            lambda said: {"InstanceIds": list(said["ids"])}, _nothing, changes=True
        ),
    }
)
"""Every operation by the name of its API."""
