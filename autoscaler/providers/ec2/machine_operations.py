"""The calls to EC2 that launch, list and terminate machines, with small tuples as results.

Runs in the worker process only. Each function sends one request, without retries.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from autoscaler.providers.ec2.clients import Arguments, Clients
from autoscaler.providers.ec2.rows import (
    MAX_TEXT,
    FleetErrorRow,
    FleetInstanceRow,
    InstanceRow,
)
from autoscaler.providers.ec2.tags import FIELDS


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
