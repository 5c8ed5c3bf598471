"""Unused launch templates and volumes of this fleet are deleted, and those of others are kept."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import InstallationId, Installations
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.requests import template_of
from autoscaler.providers.ec2.launching.templates import FRESH_FOR, Resources
from autoscaler.providers.ec2.launching.unused import (
    MOST_AT_ONCE,
    ORPHANED_AFTER,
    TEMPLATE_KEPT_FOR,
    UnusedResources,
)
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, NamedImage
from autoscaler.providers.ec2.tags import FLEET, INSTALLATION
from autoscaler.providers.ec2.worker.channel import WorkerChannel
from tests.providers.conftest import REGION, SKU, Borrowed
from tests.providers.contract import MakeOrder
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi
from tests.providers.ec2_keys import with_keys

pytestmark = pytest.mark.asyncio(loop_scope="session")

FAR = 4e9
"""Unix seconds after anything that moto dates by the real clock."""


def make_volume(client: Any, fleet: str, installation: str) -> str:
    tags = [{"Key": FLEET, "Value": fleet}, {"Key": INSTALLATION, "Value": installation}]
    volume: str = client.create_volume(
        AvailabilityZone="us-east-1a",
        Size=8,
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )["VolumeId"]
    return volume


def templates(client: Any, settings: Ec2Settings) -> set[str]:
    wanted = [{"Name": f"tag:{FLEET}", "Values": [settings.fleet]}]
    found = client.describe_launch_templates(Filters=wanted)["LaunchTemplates"]
    return {one["LaunchTemplateId"] for one in found}


async def other_template(settings: Ec2Settings, worker: WorkerChannel, order: Any) -> str:
    """Return the template that a provider with these settings creates for an order."""
    provider = Ec2Provider(settings, RememberingTelemetry(), ManualClock(), Borrowed(worker))
    return template_of(await provider.prepare(order))


class Account:
    """An account with one image, whose templates are old enough to be deleted at once."""

    def __init__(self) -> None:
        self.templates: dict[str, str] = {}
        self._made = 0

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        match operation:
            case "DescribeImages":
                return [["ami-1", "one", "2026", "x86_64", "/dev/sda1", 8, []]], None
            case "CreateLaunchTemplate":
                return self._make(arguments["name"])
            case "DescribeLaunchTemplates":
                wanted = arguments.get("name")
                there = self.templates.items()
                return [[one, name, 0.0] for name, one in there if wanted in (None, name)], None
            case "DeleteLaunchTemplate":
                kept = self.templates.items()
                self.templates = {name: one for name, one in kept if one != arguments["id"]}
                return None
        return [], None

    def _make(self, name: str) -> str:
        if name in self.templates:
            code = "InvalidLaunchTemplateName.AlreadyExistsException"
            raise ProviderError(FailureClass.UNKNOWN, code, "there is one")
        self.templates[name] = f"lt-{self._made}"
        self._made += 1
        return self.templates[name]


class SlowlyDeleting(ScriptedApi):
    """Reports when a template is being deleted, and deletes it when the test allows it."""

    def __init__(self, answer: Callable[[str, Mapping[str, Any]], Any]) -> None:
        super().__init__(answer)
        self.deleting = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "DeleteLaunchTemplate":
            self.deleting.set()
            await self.goes_on.wait()
        return await super().call(operation, arguments)


@pytest.mark.case(
    "launch templates that nothing needs are deleted, those of others are kept",
    topic="Images and disks",
    source="EC2: launch templates",
)
async def test_templates_that_no_sku_and_no_open_launch_request_uses_are_deleted(
    provider: Ec2Provider,
    settings: Ec2Settings,
    worker: WorkerChannel,
    clock: ManualClock,
    make_order: MakeOrder,
    client: Any,
) -> None:
    def with_disk(size: int, **changes: Any) -> Ec2Settings:
        sku = with_keys(settings.skus[SKU], disk_gb=size)
        return replace(settings, skus={SKU: sku}, **changes)

    order = make_order(1, "t")
    old = await other_template(with_disk(111), worker, order)
    foreign = await other_template(
        with_disk(112, installations=Installations(InstallationId("other"))), worker, order
    )
    open_provider = Ec2Provider(
        with_disk(113), RememberingTelemetry(), ManualClock(), Borrowed(worker)
    )
    open_request = await open_provider.prepare(order)
    current = template_of(await provider.prepare(order))
    kept = {foreign, template_of(open_request), current}
    assert await provider.delete_unused([open_request]) == ()  # all of them are young
    clock.time = FAR
    await provider.prepare(order)
    assert await provider.delete_unused([open_request]) == (old,)
    assert templates(client, settings) == kept


async def test_a_recently_used_template_is_kept_although_its_sku_has_another(
    settings: Ec2Settings,
    worker: WorkerChannel,
    make_order: MakeOrder,
    client: Any,
) -> None:
    source = client.describe_images(
        Filters=[{"Name": "name", "Values": [settings.skus[SKU].image.name]}]
    )["Images"][0]["ImageId"]

    def publish(number: int) -> str:
        image: str = client.copy_image(
            Name=f"{settings.fleet}-{number}", SourceImageId=source, SourceRegion=REGION
        )["ImageId"]
        return image

    sku = replace(settings.skus[SKU], image=NamedImage(name=f"{settings.fleet}-*"))
    clock = ManualClock(FAR)
    own = replace(settings, skus={SKU: sku})
    provider = Ec2Provider(own, RememberingTelemetry(), clock, Borrowed(worker))
    clock.time += TEMPLATE_KEPT_FOR
    image = publish(1)
    first = template_of(await provider.prepare(make_order(1, "t")))
    client.deregister_image(ImageId=image)
    image = publish(2)
    clock.time += FRESH_FOR + 1
    second = template_of(await provider.prepare(make_order(1, "u")))
    client.deregister_image(ImageId=image)
    assert second != first
    assert await provider.delete_unused([]) == ()
    clock.time += TEMPLATE_KEPT_FOR
    assert await provider.delete_unused([]) == (first,)
    assert templates(client, settings) == {second}


async def test_a_deleted_template_is_created_again_when_needed(
    settings: Ec2Settings, clock: ManualClock
) -> None:
    api = ScriptedApi(Account().answer)
    resources = Resources(settings, api, clock)
    unused_resources = UnusedResources(settings, api, clock, resources)
    sku = settings.skus[SKU]
    assert await resources.template(sku) == "lt-0"
    later = with_keys(sku, disk_gb=500)
    assert await resources.template(later) == "lt-1"
    clock.time += TEMPLATE_KEPT_FOR + 1
    assert await unused_resources.delete_unused([]) == ("lt-0",)
    assert await resources.template(later) == "lt-1"
    assert await resources.template(sku) == "lt-2"


@pytest.mark.case(
    "launch templates in use survive a restart",
    topic="EC2's API",
    source="EC2: DeleteLaunchTemplate",
)
async def test_after_a_restart_no_template_is_deleted_before_launch_requests_could_use_it(
    settings: Ec2Settings, clock: ManualClock
) -> None:
    api = ScriptedApi(Account().answer)
    sku, unused = settings.skus[SKU], with_keys(settings.skus[SKU], disk_gb=500)
    earlier = Resources(settings, api, clock)
    for one in (sku, unused):
        await earlier.template(one)
    clock.time += 2 * TEMPLATE_KEPT_FOR
    resources = Resources(settings, api, clock)
    unused_resources = UnusedResources(settings, api, clock, resources)
    assert await unused_resources.delete_unused([]) == ()
    clock.time += TEMPLATE_KEPT_FOR - 1
    assert await unused_resources.delete_unused([]) == ()
    assert await resources.template(sku) == "lt-0"
    clock.time += 1
    assert await unused_resources.delete_unused([]) == ("lt-1",)


@pytest.mark.case(
    "a SKU needs a launch template again while it is being deleted",
    topic="EC2's API",
    source="EC2: DeleteLaunchTemplate",
)
async def test_a_template_used_while_others_are_deleted_is_kept(
    settings: Ec2Settings, clock: ManualClock
) -> None:
    account = Account()
    api = SlowlyDeleting(account.answer)
    skus = [with_keys(settings.skus[SKU], disk_gb=size) for size in (100, 200)]
    earlier = Resources(settings, api, clock)
    for sku in skus:
        await earlier.template(sku)
    resources = Resources(settings, api, clock)
    unused_resources = UnusedResources(settings, api, clock, resources)
    clock.time += TEMPLATE_KEPT_FOR
    collected = asyncio.create_task(unused_resources.delete_unused([]))
    await api.deleting.wait()
    remade = asyncio.create_task(resources.template(skus[0]))
    assert await resources.template(skus[1]) == "lt-1"
    api.goes_on.set()
    assert await collected == ("lt-0",)
    assert await remade == "lt-2"
    assert set(account.templates.values()) == {"lt-1", "lt-2"}


@pytest.mark.case(
    "a volume outlives its machine: it is deleted, volumes of others are kept",
    topic="Images and disks",
    source="EC2: volumes after termination",
)
async def test_only_volumes_of_this_fleet_that_stay_available_are_deleted(
    provider: Ec2Provider, settings: Ec2Settings, clock: ManualClock, client: Any
) -> None:
    ours = make_volume(client, settings.fleet, settings.installations.own)
    foreign = make_volume(client, settings.fleet, "other")
    stranger = make_volume(client, settings.fleet + "x", settings.installations.own)
    assert await provider.delete_unused([]) == ()
    clock.time += ORPHANED_AFTER - 1
    assert await provider.delete_unused([]) == ()
    clock.time += 1
    assert await provider.delete_unused([]) == (ours,)
    left = {one["VolumeId"] for one in client.describe_volumes()["Volumes"]}
    assert {foreign, stranger} <= left
    assert ours not in left
    assert await provider.delete_unused([]) == ()


@pytest.mark.case(
    "a resource that cannot be deleted does not stop the deletion of others",
    topic="EC2's API",
    source="EC2: error codes",
)
async def test_a_resource_that_cannot_be_deleted_does_not_stop_the_others(
    settings: Ec2Settings, clock: ManualClock
) -> None:
    locked = [f"lt-{number}" for number in range(MOST_AT_ONCE)]
    there = [*locked, "lt-free"]

    def answer(operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "DeleteLaunchTemplate" and arguments["id"] in locked:
            raise ProviderError(FailureClass.CONFIGURATION, "UnauthorizedOperation", "locked")
        rows = {"DescribeLaunchTemplates": [[one, one, 0.0] for one in there]}
        return rows.get(operation, [["vol-1"]]), None

    api = ScriptedApi(answer)
    unused_resources = new_unused_resources(settings, clock, api)
    await unused_resources.delete_unused([])
    clock.time += TEMPLATE_KEPT_FOR
    tried: list[list[str]] = []
    for _ in range(2):
        api.calls.clear()
        with pytest.raises(ProviderError, match="locked"):
            await unused_resources.delete_unused([])
        tried.append([call[1]["id"] for call in api.calls if call[0].startswith("Delete")])
    assert tried[0] == [*locked, "vol-1"]
    assert tried[1] == ["lt-free", *locked[:-1], "vol-1"]


@pytest.mark.case(
    "EC2 throttles, or does not answer, while resources are being deleted",
    topic="EC2's API",
    source="EC2: request throttling",
)
@pytest.mark.parametrize(
    "error",
    [
        ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "slow"),
        OutcomeUnknownError("InternalError: oh"),
    ],
    ids=["throttled", "unknown"],
)
@pytest.mark.parametrize("failing", ["DescribeLaunchTemplates", "DeleteLaunchTemplate"])
async def test_a_kind_of_resource_that_cannot_be_listed_is_collected_the_next_time(
    settings: Ec2Settings, clock: ManualClock, error: Exception, failing: str
) -> None:
    def answer(operation: str, _: Mapping[str, Any]) -> Any:
        if operation == failing:
            raise error
        templates = [[one, one, 0.0] for one in ("lt-0", "lt-1")]
        return (templates if operation == "DescribeLaunchTemplates" else [["vol-1"]]), None

    api = ScriptedApi(answer)
    unused_resources = new_unused_resources(settings, clock, api)
    await unused_resources.delete_unused([])
    clock.time += TEMPLATE_KEPT_FOR
    with pytest.raises(type(error)):
        await unused_resources.delete_unused([])
    asked = [operation for operation, _ in api.calls]
    assert asked.count(failing) == 1
    assert asked.count("DeleteVolume") == 1


@pytest.mark.case(
    "EC2 throttles, or does not answer, while resources are being deleted",
    topic="EC2's API",
    source="EC2: request throttling",
)
async def test_a_deletion_without_an_answer_comes_last_the_next_time(
    settings: Ec2Settings, clock: ManualClock
) -> None:
    def answer(operation: str, arguments: Mapping[str, Any]) -> Any:
        if arguments.get("id") == "vol-0":
            raise OutcomeUnknownError("InternalError: oh")
        return ([["vol-0"], ["vol-1"]] if operation == "DescribeVolumes" else []), None

    api = ScriptedApi(answer)
    unused_resources = new_unused_resources(settings, clock, api)
    await unused_resources.delete_unused([])
    clock.time += ORPHANED_AFTER
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            await unused_resources.delete_unused([])
    tried = [call[1]["id"] for call in api.calls if call[0] == "DeleteVolume"]
    assert tried == ["vol-0", "vol-1", "vol-0"]


def new_unused_resources(
    settings: Ec2Settings, clock: ManualClock, api: ScriptedApi
) -> UnusedResources:
    return UnusedResources(settings, api, clock, Resources(settings, api, clock))


async def test_the_wait_of_a_volume_restarts_after_use_and_few_are_deleted_at_once(
    settings: Ec2Settings, clock: ManualClock
) -> None:
    volumes = [f"vol-{number}" for number in range(MOST_AT_ONCE + 5)]
    shown: list[list[str]] = []

    def answer(operation: str, _: Mapping[str, Any]) -> Any:
        if operation == "DescribeVolumes":
            return [[one] for one in shown[-1]], None
        return ([], None) if operation.startswith("Describe") else None

    unused_resources = new_unused_resources(settings, clock, ScriptedApi(answer))
    for listed in (volumes, volumes[1:], volumes):
        shown.append(listed)
        await unused_resources.delete_unused([])
        clock.time += ORPHANED_AFTER / 2
    deleted = await unused_resources.delete_unused([])
    assert len(deleted) == MOST_AT_ONCE
    assert volumes[0] not in deleted


@pytest.mark.parametrize(
    ("code", "raised"),
    [("InvalidVolume.NotFound", False), ("VolumeInUse", False), ("UnauthorizedOperation", True)],
)
async def test_a_volume_that_was_deleted_meanwhile_is_no_error(
    settings: Ec2Settings, clock: ManualClock, code: str, raised: bool
) -> None:
    def answer(operation: str, _: Mapping[str, Any]) -> Any:
        if operation == "DeleteVolume":
            raise ProviderError(FailureClass.UNKNOWN, code, "no")
        return ([["vol-1"]] if operation == "DescribeVolumes" else [], None)

    unused_resources = new_unused_resources(settings, clock, ScriptedApi(answer))
    await unused_resources.delete_unused([])
    clock.time += ORPHANED_AFTER
    if raised:
        with pytest.raises(ProviderError, match=code):
            await unused_resources.delete_unused([])
    else:
        assert await unused_resources.delete_unused([]) == ()


@pytest.mark.case(
    "an adoption gives up an installation's id: resources with that id are still found and deleted",
    topic="EC2's machines",
    source="ARC#4397",
)
async def test_after_an_adoption_unused_resources_of_both_installations_are_collected(
    settings: Ec2Settings,
    worker: WorkerChannel,
    client: Any,
    make_order: MakeOrder,
) -> None:
    old, clock = InstallationId("01d01d01"), ManualClock(FAR)
    theirs = make_volume(client, settings.fleet, old)
    ours = make_volume(client, settings.fleet, settings.installations.own)
    foreign = make_volume(client, settings.fleet, "other")
    order = make_order(1, "t")
    template = await other_template(settings, worker, order)
    strange = await other_template(
        replace(settings, installations=Installations(InstallationId("other"))), worker, order
    )
    provider = Ec2Provider(settings, RememberingTelemetry(), clock, Borrowed(worker))
    provider.adopt(old)
    used = template_of(await provider.prepare(order))
    await provider.delete_unused(())
    clock.time += TEMPLATE_KEPT_FOR + 1
    used_still = template_of(await provider.prepare(order))
    assert set(await provider.delete_unused(())) == {theirs, ours, template}
    left = {one["VolumeId"] for one in client.describe_volumes()["Volumes"]}
    assert foreign in left
    assert templates(client, settings) == {strange, used, used_still}


async def test_a_template_with_a_former_id_is_kept_while_a_launch_request_may_use_it(
    settings: Ec2Settings, worker: WorkerChannel, client: Any, make_order: MakeOrder
) -> None:
    clock = ManualClock(FAR)
    before = Ec2Provider(settings, RememberingTelemetry(), clock, Borrowed(worker))
    request = await before.prepare(make_order(1, "t"))
    # The next process has the former id from the store.
    later = settings.after_adoption(InstallationId("01d01d01"))
    provider = Ec2Provider(later, RememberingTelemetry(), clock, Borrowed(worker))
    clock.time += TEMPLATE_KEPT_FOR + 1
    assert await provider.delete_unused([request]) == ()
    assert await provider.delete_unused([]) == (template_of(request),)
    assert templates(client, settings) == set()


async def test_after_an_adoption_templates_have_the_adopted_id(
    provider: Ec2Provider, client: Any, make_order: MakeOrder
) -> None:
    before = template_of(await provider.prepare(make_order(1, "before")))
    provider.adopt(InstallationId("01d01d01"))
    after = template_of(await provider.prepare(make_order(1, "after")))
    assert after != before
    (version,) = client.describe_launch_template_versions(LaunchTemplateId=after)[
        "LaunchTemplateVersions"
    ]
    for made in version["LaunchTemplateData"]["TagSpecifications"]:
        assert {"Key": INSTALLATION, "Value": "01d01d01"} in made["Tags"]
