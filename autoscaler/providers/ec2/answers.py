"""Converts EC2's rows into the model's types: results of launches, and listed machines. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.provider import LaunchAnswer, ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.events import LaunchedMachine, LaunchFailure, ListedMachine
from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId, ProviderName, SkuName
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.wording import counted
from autoscaler.providers.ec2.errors import NOT_TRIED, ending_meaning, says_unsupported
from autoscaler.providers.ec2.errors import meaning as error_meaning
from autoscaler.providers.ec2.instance_types import Prices
from autoscaler.providers.ec2.offerings import quota_usage_of, running_cost
from autoscaler.providers.ec2.rows import FleetErrorRow, FleetInstanceRow, InstanceRow
from autoscaler.providers.ec2.settings import Ec2Settings

_ENDING = frozenset({"shutting-down", "stopping", "stopped"})


def launch_answer(
    provider: ProviderName,
    request: Mapping[str, Any],
    answer: tuple[Iterable[list[str]], Iterable[list[str]]],
    image: str,
) -> LaunchAnswer:
    """Return the result of a CreateFleet `request`. `image` is its template's, or empty if unknown."""
    target = request["TargetCapacitySpecification"]
    machines = tuple(_launched(FleetInstanceRow(*row), image) for row in answer[0])
    errors = _tried([FleetErrorRow(*row) for row in answer[1]])
    kind = target["DefaultTargetCapacityType"]
    failures = tuple(_failure(provider, kind, row) for row in errors)
    if not failures and len(machines) < target["TotalTargetCapacity"]:
        missing = target["TotalTargetCapacity"] - len(machines)
        message = (
            f"EC2 launched {counted(missing, 'machine')} fewer than requested, and gave no reason"
        )
        failures = (LaunchFailure(FailureClass.UNKNOWN, "Unfulfilled", message),)
    return LaunchAnswer(machines, failures)


def refused_override(
    provider: ProviderName, request: Mapping[str, Any], error: ProviderError
) -> tuple[str, ProviderError] | None:
    """Return the subnet of the override that EC2 refused the whole request for, and its error.

    None if EC2 names no override. EC2 names a full subnet, or an instance type and a zone without it,
    only in the message. Without this, all offerings of the request would be put on hold.
    """
    unsupported = says_unsupported(error.code, error.message)
    if error.scope is not FailureScope.ZONE and not unsupported:
        return None
    kind = request["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
    for override in request["LaunchTemplateConfigs"][0]["Overrides"]:
        named = [override["SubnetId"]]
        if unsupported:
            named = [override["InstanceType"], override["AvailabilityZone"]]
        if all(_names(error.message, one) for one in named):
            sold = f"{override['InstanceType']}/{override['AvailabilityZone']}/{kind}"
            offering = f"{provider}/{sold}"
            failure = FailureClass.UNSUPPORTED if unsupported else error.failure
            wait, scope = error.retry_after, error.scope
            named_one = ProviderError(failure, error.code, error.message, wait, scope, offering)
            return override["SubnetId"], named_one
    return None


def _names(message: str, name: str) -> bool:
    # EC2's message also lists the zones that offer it: "or choosing us-east-1a, us-east-1b".
    said = re.split(r"\bor choosing\b", message)[0]
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", said) is not None


def _launched(row: FleetInstanceRow, image: str) -> LaunchedMachine:
    return LaunchedMachine(
        provider_id=ProviderMachineId(row.id),
        instance_type=row.instance_type,
        zone=row.zone,
        capacity_type=_capacity_type(row.lifecycle),
        image=image,
    )


def _tried(errors: list[FleetErrorRow]) -> list[FleetErrorRow]:
    """Return the errors of the overrides that EC2 tried.

    An instant fleet tries about three pools and reports `UnfulfillableCapacity` for the others. If
    there are also other codes, this code says nothing about its pool.
    """
    concrete = [row for row in errors if row.code != NOT_TRIED]
    return concrete or errors


def _failure(provider: ProviderName, capacity_type: str, row: FleetErrorRow) -> LaunchFailure:
    meaning = error_meaning(row.code)
    if not (row.instance_type and row.zone):
        return LaunchFailure(meaning.failure, row.code, row.message, None, meaning.scope)
    offering = f"{provider}/{row.instance_type}/{row.zone}/{capacity_type}"
    failure = meaning.failure
    if says_unsupported(row.code, row.message):
        failure = FailureClass.UNSUPPORTED
    return LaunchFailure(failure, row.code, row.message, offering, meaning.scope)


def listed_machine(
    settings: Ec2Settings, row: InstanceRow, prices: Prices | None = None
) -> ListedMachine:
    """Return one listed machine with its price and quota usage.

    The price is for the operating system of its SKU, or of its platform if the SKU is unknown.
    `prices` defaults to those of the settings.
    """
    capacity_type = _capacity_type(row.lifecycle)
    terminated, leaving = row.state == "terminated", row.state in _ENDING
    ending = ending_meaning(row.ended_by) if terminated or leaving else None
    return ListedMachine(
        provider_id=ProviderMachineId(row.id),
        installation=row.installation,
        launch_request=LaunchRequestId(row.launch_request),
        sku=SkuName(row.sku),
        terminated=terminated,
        instance_type=row.instance_type,
        zone=row.zone,
        capacity_type=capacity_type,
        dollars_per_hour=running_cost(
            row.instance_type, _os(settings, row), prices or settings.price_list, capacity_type
        ),
        quota_usage=() if terminated else _quota_usage(settings, row, capacity_type),
        image=row.image,
        launch_time=row.launch_time,
        reason=row.reason or (row.state if leaving else ""),
        failure=ending.failure if ending else None,
        scope=ending.scope if ending else None,
        leaving=leaving,
        state=row.state,
    )


def _quota_usage(
    settings: Ec2Settings, row: InstanceRow, capacity_type: CapacityType
) -> tuple[tuple[str, int], ...]:
    if row.reservation:
        return ((f"{settings.name}/{row.reservation}", 1),)
    return quota_usage_of(settings.name, row.instance_type, capacity_type)


def _os(settings: Ec2Settings, row: InstanceRow) -> OperatingSystem:
    sku = settings.skus.get(SkuName(row.sku))
    if sku is not None:
        return sku.os
    return OperatingSystem.WINDOWS if row.platform == "windows" else OperatingSystem.LINUX


def _capacity_type(lifecycle: str) -> CapacityType:
    known = {kind.value: kind for kind in CapacityType}
    return known.get(lifecycle, CapacityType.ON_DEMAND)
