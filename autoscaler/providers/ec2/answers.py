"""EC2's rows in the product's words: answers to launches, and machines as listed.

Pure. It adds nothing that EC2 did not say, except what a machine costs and holds.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.provider import LaunchAnswer, ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.events import LaunchedMachine, LaunchFailure, ListedMachine
from autoscaler.model.failures import FailureClass, Reach
from autoscaler.model.identifiers import CallId, ProviderMachineId, ProviderName, SkuName
from autoscaler.providers.ec2.errors import ending_meaning
from autoscaler.providers.ec2.errors import meaning as error_meaning
from autoscaler.providers.ec2.offerings import quota_holds, running_cost
from autoscaler.providers.ec2.rows import FleetErrorRow, FleetInstanceRow, InstanceRow
from autoscaler.providers.ec2.settings import Ec2Settings

_ENDING = frozenset({"shutting-down", "stopping", "stopped"})


def launch_answer(
    provider: ProviderName,
    request: Mapping[str, Any],
    answer: tuple[Iterable[list[str]], Iterable[list[str]]],
    image: str,
) -> LaunchAnswer:
    """What CreateFleet's `request` led to. `image` is its template's, or empty if not known."""
    target = request["TargetCapacitySpecification"]
    machines = tuple(_launched(FleetInstanceRow(*row), image) for row in answer[0])
    failures = tuple(
        _failure(provider, target["DefaultTargetCapacityType"], FleetErrorRow(*row))
        for row in answer[1]
    )
    if not failures and len(machines) < target["TotalTargetCapacity"]:
        missing = target["TotalTargetCapacity"] - len(machines)
        message = f"{missing} fewer than asked for, and no reason given"
        failures = (LaunchFailure(FailureClass.UNKNOWN, "Unfulfilled", message),)
    return LaunchAnswer(machines, failures)


def refused_subnet(
    provider: ProviderName, request: Mapping[str, Any], error: ProviderError
) -> tuple[str, LaunchAnswer] | None:
    """The subnet that a whole call was refused for, and that as an answer; None if none is named.

    EC2 names the subnet in the message alone; without it all zones of the call would be held.
    """
    if error.reach is not Reach.ZONE:
        return None
    kind = request["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
    for override in request["LaunchTemplateConfigs"][0]["Overrides"]:
        subnet = override["SubnetId"]
        if re.search(rf"\b{re.escape(subnet)}\b", error.message):
            sold = f"{override['InstanceType']}/{override['AvailabilityZone']}/{kind}"
            offering = f"{provider}/{sold}"
            failure = LaunchFailure(error.failure, error.code, error.message, offering, error.reach)
            return subnet, LaunchAnswer((), (failure,))
    return None


def _launched(row: FleetInstanceRow, image: str) -> LaunchedMachine:
    return LaunchedMachine(
        provider_id=ProviderMachineId(row.id),
        instance_type=row.instance_type,
        zone=row.zone,
        capacity_type=_capacity_type(row.lifecycle),
        image=image,
    )


def _failure(provider: ProviderName, capacity_type: str, row: FleetErrorRow) -> LaunchFailure:
    offering, meaning = None, error_meaning(row.code)
    if row.instance_type and row.zone:
        offering = f"{provider}/{row.instance_type}/{row.zone}/{capacity_type}"
    return LaunchFailure(meaning.failure, row.code, row.message, offering, meaning.reach)


def listed_machine(settings: Ec2Settings, row: InstanceRow) -> ListedMachine:
    """One machine of a list, with its price by its SKU's operating system, else its platform's."""
    capacity_type = _capacity_type(row.lifecycle)
    terminated, leaving = row.state == "terminated", row.state in _ENDING
    ending = ending_meaning(row.ended_by) if terminated or leaving else None
    return ListedMachine(
        provider_id=ProviderMachineId(row.id),
        installation=row.installation,
        call=CallId(row.call),
        sku=SkuName(row.sku),
        terminated=terminated,
        instance_type=row.instance_type,
        zone=row.zone,
        capacity_type=capacity_type,
        dollars_per_hour=running_cost(
            row.instance_type, _os(settings, row), settings.price_list, capacity_type
        ),
        holds=() if terminated else quota_holds(settings.name, row.instance_type, capacity_type),
        image=row.image,
        launch_time=row.launch_time,
        reason=row.reason or (row.state if leaving else ""),
        failure=ending.failure if ending else None,
        reach=ending.reach if ending else None,
        leaving=leaving,
    )


def _os(settings: Ec2Settings, row: InstanceRow) -> OperatingSystem:
    sku = settings.skus.get(SkuName(row.sku))
    if sku is not None:
        return sku.os
    return OperatingSystem.WINDOWS if row.platform == "windows" else OperatingSystem.LINUX


def _capacity_type(lifecycle: str) -> CapacityType:
    return CapacityType.SPOT if lifecycle == "spot" else CapacityType.ON_DEMAND
