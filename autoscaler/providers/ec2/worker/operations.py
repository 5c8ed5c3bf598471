"""The calls to EC2 for machines and to SQS for notices, and the table of all calls to AWS.

They run in the worker process only, and return small tuples. Each sends one request, without retries.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from autoscaler.providers.ec2.tags import FIELDS
from autoscaler.providers.ec2.worker.account_operations import (
    create_launch_template,
    delete_launch_template,
    delete_volume,
    describe_capacity_reservations,
    describe_images,
    describe_instance_type_offerings,
    describe_launch_templates,
    describe_subnets,
    describe_volumes,
    get_caller_identity,
    list_service_quotas,
)
from autoscaler.providers.ec2.worker.clients import Arguments, Clients
from autoscaler.providers.ec2.worker.price_operations import (
    describe_spot_price_history,
    get_products,
)
from autoscaler.providers.ec2.worker.rows import (
    MAX_BODY,
    MAX_TEXT,
    FleetErrorRow,
    FleetInstanceRow,
    InstanceRow,
    MessageRow,
)


def create_fleet(
    clients: Clients, arguments: Arguments
) -> tuple[list[FleetInstanceRow], list[FleetErrorRow]]:
    """Send a CreateFleet request unchanged; return the machines and the errors of its overrides."""
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
    """Request the termination of these machines."""
    clients.ec2.terminate_instances(InstanceIds=list(arguments["ids"]))


def get_console_output(clients: Clients, arguments: Arguments) -> str:
    """Return at most the last `most` characters of a machine's console output, or an empty text.

    `latest` asks for the current output, otherwise that of the last state transition.
    """
    answer = clients.ec2.get_console_output(InstanceId=arguments["id"], Latest=arguments["latest"])
    # The SDK has decoded the base64. Only the end of up to 64 KiB is sent to the controller.
    return answer.get("Output", "")[-arguments["most"] :]


def describe_instances(
    clients: Clients, arguments: Arguments
) -> tuple[list[InstanceRow], str | None]:
    """Return one page of at most `size` machines with one of `values` for the filter `filter`."""
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
    target = one.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
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
        launch_request=tags.get("launch_request", ""),
        fleet=tags.get("fleet", ""),
        tenancy=one.get("Placement", {}).get("Tenancy", ""),
        vcpus=cpus.get("CoreCount", 0) * cpus.get("ThreadsPerCore", 1),
        ended_by=reason.get("Code", "")[:MAX_TEXT],
        reservation=target.get("CapacityReservationId", ""),
    )


def _reason(code: str, message: str) -> str:
    # EC2 repeats the code at the start of most messages.
    text = message if message.startswith(code) else f"{code}: {message}"
    return text[:MAX_TEXT]


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def receive_message(clients: Clients, arguments: Arguments) -> list[MessageRow]:
    """Return at most `most` messages of the queue `url`; waits `wait` whole seconds for the first."""
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
            # One character more than the limit, so that the parser sees that the body is too long.
            one.get("Body", "")[: MAX_BODY + 1],
            int(one.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
        )
        for one in answer.get("Messages", ())
    ]


def delete_message_batch(clients: Clients, arguments: Arguments) -> list[tuple[str, str]]:
    """Delete the messages of these `receipts` from the queue `url`; return refusals with reasons.

    An unknown receipt is not a refusal: the message was deleted, or will be received again.
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


OPERATIONS: Mapping[str, Callable[[Clients, Arguments], object]] = {
    "CreateFleet": create_fleet,
    "CreateLaunchTemplate": create_launch_template,
    "DeleteLaunchTemplate": delete_launch_template,
    "DeleteMessageBatch": delete_message_batch,
    "DeleteVolume": delete_volume,
    "DescribeCapacityReservations": describe_capacity_reservations,
    "DescribeImages": describe_images,
    "DescribeInstanceTypeOfferings": describe_instance_type_offerings,
    "DescribeInstances": describe_instances,
    "DescribeLaunchTemplates": describe_launch_templates,
    "DescribeSpotPriceHistory": describe_spot_price_history,
    "DescribeSubnets": describe_subnets,
    "DescribeVolumes": describe_volumes,
    "GetCallerIdentity": get_caller_identity,
    "GetConsoleOutput": get_console_output,
    "GetProducts": get_products,
    "ListServiceQuotas": list_service_quotas,
    "ReceiveMessage": receive_message,
    "TerminateInstances": terminate_instances,
}
"""Every operation by the name of its API."""
