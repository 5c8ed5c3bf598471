"""Reads machines and their console output."""

from collections.abc import AsyncIterator, Sequence

from autoscaler.controller.ports.provider import MOST_CONSOLE, ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId, SkuName
from autoscaler.providers.ec2.errors import ending_meaning, first_part
from autoscaler.providers.ec2.instance_types import Prices, capacity_type_of
from autoscaler.providers.ec2.launching.offerings import quota_usage_of, running_cost
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.channel import Api, pages
from autoscaler.providers.ec2.worker.rows import InstanceRow

PAGE = 500
"""Machines in a page of the list. The worker needs about 0.2 s to parse a page."""

_ENDING = frozenset({"shutting-down", "stopping", "stopped"})

_NOT_NOW = frozenset({"IncorrectInstanceState", "UnsupportedOperation"})
"""Errors for the latest output, which exists only for running machines of Nitro types (EC2 API
Reference, GetConsoleOutput). Other machines have the output of their last state transition."""


async def list_instances(
    api: Api, name: str, values: Sequence[str]
) -> AsyncIterator[list[InstanceRow]]:
    """Yield pages of the machines that the filter `name` finds. Raises ProviderError, OutcomeUnknownError."""
    arguments = {"filter": name, "values": values, "size": PAGE}
    async for page in pages(api, "DescribeInstances", arguments):
        yield [InstanceRow(*row) for row in page]


def listed_machine(
    settings: Ec2Settings, row: InstanceRow, prices: Prices | None = None
) -> ListedMachine:
    """Return one listed machine with its price and quota usage.

    The price is for the operating system of its SKU, or of its platform if the SKU is unknown.
    `prices` defaults to those of the settings.
    """
    capacity_type = capacity_type_of(row.lifecycle)
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
        error=row.ended_by,
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
        return sku.keys.os
    return OperatingSystem.WINDOWS if row.platform == "windows" else OperatingSystem.LINUX


async def read_console(api: Api, machine: ProviderMachineId) -> str:
    """Return the end of the output, or an empty text. Raises ProviderError, OutcomeUnknownError."""
    arguments = {"id": machine, "most": MOST_CONSOLE}
    try:
        shown = await api.call("GetConsoleOutput", arguments | {"latest": True})
    except ProviderError as error:
        if first_part(error.code) not in _NOT_NOW:
            raise
        shown = ""
    if not shown:
        shown = await api.call("GetConsoleOutput", arguments | {"latest": False})
    return str(shown)
