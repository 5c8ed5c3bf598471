"""Converts CreateFleet's answer and its errors into the model's types. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.provider import LaunchAnswer, ProviderError
from autoscaler.model.events import LaunchedMachine, LaunchFailure
from autoscaler.model.identifiers import ProviderMachineId, ProviderName
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.wording import counted
from autoscaler.providers.ec2.errors import NOT_TRIED, says_unsupported
from autoscaler.providers.ec2.errors import meaning as error_meaning
from autoscaler.providers.ec2.instance_types import capacity_type_of
from autoscaler.providers.ec2.worker.rows import FleetErrorRow, FleetInstanceRow


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
        capacity_type=capacity_type_of(row.lifecycle),
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
