"""A listing continues while EC2 returns a token: an empty page is not its end.

EC2 may return a token with fewer results than asked for, or with none (EC2 API Reference,
DescribeInstances: MaxResults, NextToken; boto/boto3#130).
"""

from collections.abc import Mapping
from typing import Any

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.ec2.launching.templates import Resources
from autoscaler.providers.ec2.launching.unused import (
    ORPHANED_AFTER,
    TEMPLATE_KEPT_FOR,
    UnusedResources,
)
from autoscaler.providers.ec2.notices.queue import Ec2NoticeQueue
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.rows import InstanceRow, QuotaRow
from autoscaler.providers.ec2.worker.throttle import MeteredApi, Throttle
from tests.providers.conftest import SKU
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi

BROKE = OutcomeUnknownError("the connection broke")


class Pages:
    """An account whose lists come in these pages; an error in their place is raised."""

    def __init__(self, **pages: list[Any]) -> None:
        self.pages: dict[str, list[Any]] = pages
        self.deleted: list[str] = []

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation.startswith("Delete"):
            self.deleted.append(arguments["id"])
            return None
        if operation == "CreateLaunchTemplate":
            return "lt-made"
        if operation == "DescribeSubnets":
            return [["subnet-0a", "us-east-1a", 9], ["subnet-0b", "us-east-1b", 9]]
        pages = self.pages.get(operation, [[]])
        number = int(arguments["page"] or 0)
        if isinstance(pages[number], Exception):
            raise pages[number]
        following = str(number + 1) if number + 1 < len(pages) else None
        return pages[number], following


def machine(number: int, settings: Ec2Settings, **fields: str) -> InstanceRow:
    plain = InstanceRow(
        f"i-{number}",
        "running",
        "g5.xlarge",
        "us-east-1a",
        "on-demand",
        "",
        "ami-1",
        "t0",
        "",
        settings.installations.own,
        "linux.g5.xlarge",
        "c",
        settings.fleet,
    )
    return plain._replace(**fields)  # type: ignore[arg-type]


def provider_with(
    pages: Pages, settings: Ec2Settings, clock: ManualClock | None = None
) -> Ec2Provider:
    api = ScriptedApi(pages.answer)
    return Ec2Provider(settings, RememberingTelemetry(), clock or ManualClock(), api)


@pytest.mark.case(
    "a page of a list is empty and has a token: the controller reads the next page",
    topic="EC2's API",
    source="EC2: DescribeInstances; boto/boto3#130",
)
async def test_machines_behind_an_empty_page_are_listed(settings: Ec2Settings) -> None:
    """Otherwise machines behind the page would be lost after the next such listing."""
    one, two = machine(1, settings), machine(2, settings)
    for pages in ([[one], [], [two]], [[], [], [one, two]], [[one], [], [], [two], []]):
        found = await listed(provider_with(Pages(DescribeInstances=pages), settings))
        assert list(found) == ["i-1", "i-2"]


async def test_a_listing_that_breaks_off_after_an_empty_page_is_incomplete(
    settings: Ec2Settings,
) -> None:
    provider = provider_with(Pages(DescribeInstances=[[machine(1, settings)], [], BROKE]), settings)
    with pytest.raises(OutcomeUnknownError):
        await listed(provider)


async def test_other_usage_of_a_quota_is_counted_after_an_empty_page(
    settings: Ec2Settings,
) -> None:
    others = [machine(number, settings, fleet="another") for number in (1, 2)]
    pages = Pages(
        DescribeInstances=[[others[0]], [], [others[1]]],
        ListServiceQuotas=[[QuotaRow("L-34B43A08", 9.0)], [], [QuotaRow("L-DB2E81BA", 40.0)]],
    )
    found = await provider_with(pages, settings).quotas()
    assert found == {"east/on-demand/G and VT": 40 - 2 * 4, "east/spot/Standard": 9}


async def test_other_usage_of_a_quota_is_unknown_after_an_incomplete_list(
    settings: Ec2Settings,
) -> None:
    pages = Pages(
        DescribeInstances=[[machine(1, settings, fleet="another")], [], BROKE],
        ListServiceQuotas=[[QuotaRow("L-DB2E81BA", 40.0)]],
    )
    with pytest.raises(OutcomeUnknownError):
        await provider_with(pages, settings).quotas()


async def test_the_newest_image_is_found_behind_an_empty_page(settings: Ec2Settings) -> None:
    def image(name: str, created: str) -> list[Any]:
        return [name, name, created, "x86_64", "/dev/sda1", 8, []]

    pages = Pages(DescribeImages=[[image("ami-old", "2025")], [], [image("ami-new", "2026")]])
    resources = Resources(settings, ScriptedApi(pages.answer), ManualClock())
    assert resources.image_of(await resources.template(settings.skus[SKU])) == "ami-new"


async def test_a_notice_s_machine_is_shown_behind_an_empty_page(settings: Ec2Settings) -> None:
    rows = [machine(1, settings), machine(2, settings)]
    pages = Pages(DescribeInstances=[[rows[0]], [], [rows[1]]])
    clock = ManualClock()
    api = MeteredApi(
        ScriptedApi(pages.answer), settings.name, RememberingTelemetry(), clock, Throttle(clock)
    )
    queue = Ec2NoticeQueue(settings, api, "https://sqs/q")
    wanted = [ProviderMachineId("i-1"), ProviderMachineId("i-2")]
    assert [one.provider_id for one in await queue.shown(wanted)] == wanted
    pages.pages["DescribeInstances"] = [[rows[0]], [], BROKE]
    with pytest.raises(OutcomeUnknownError):
        await queue.shown(wanted)


def new_unused_resources(
    pages: Pages, settings: Ec2Settings, clock: ManualClock
) -> UnusedResources:
    api = ScriptedApi(pages.answer)
    return UnusedResources(settings, api, clock, Resources(settings, api, clock))


async def test_unused_resources_after_an_empty_page_are_collected(settings: Ec2Settings) -> None:
    clock = ManualClock()
    pages = Pages(
        DescribeLaunchTemplates=[[["lt-1", "a", 0.0]], [], [["lt-2", "b", 0.0]]],
        DescribeVolumes=[[["vol-1"]], [], [["vol-2"]]],
    )
    unused_resources = new_unused_resources(pages, settings, clock)
    assert await unused_resources.delete_unused([]) == ()
    clock.time += max(TEMPLATE_KEPT_FOR, ORPHANED_AFTER)
    assert await unused_resources.delete_unused([]) == ("lt-1", "lt-2", "vol-1", "vol-2")


@pytest.mark.case(
    "a page of a list is empty and has a token: the controller reads the next page",
    topic="EC2's API",
    source="EC2: DescribeInstances; boto/boto3#130",
)
async def test_an_incomplete_list_of_volumes_deletes_none_and_keeps_their_waits(
    settings: Ec2Settings,
) -> None:
    """A volume missing from an incomplete list was not in use, so its wait does not restart."""
    clock = ManualClock()
    whole: list[Any] = [[["vol-1"]], [], [["vol-2"]]]
    pages = Pages(DescribeVolumes=whole)
    unused_resources = new_unused_resources(pages, settings, clock)
    await unused_resources.delete_unused([])
    clock.time += ORPHANED_AFTER
    pages.pages["DescribeVolumes"] = [[["vol-1"]], [], BROKE]
    with pytest.raises(OutcomeUnknownError):
        await unused_resources.delete_unused([])
    assert pages.deleted == []
    pages.pages["DescribeVolumes"] = whole
    assert await unused_resources.delete_unused([]) == ("vol-1", "vol-2")
