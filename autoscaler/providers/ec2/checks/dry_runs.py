"""Tries each permission of the controller by a dry run, or by a read where AWS has no dry run."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.ec2.checks.account import Account, AwsRefusedError
from autoscaler.providers.ec2.checks.images import find_image
from autoscaler.providers.ec2.instance_types import pricing_region
from autoscaler.providers.ec2.launching.requests import machine_tags, template_data
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.tags import FLEET, tag_list

_READS = (
    "DescribeInstances",
    "DescribeImages",
    "DescribeSubnets",
    "DescribeInstanceTypeOfferings",
    "DescribeLaunchTemplates",
    "DescribeVolumes",
    "DescribeSpotPriceHistory",
)
_NOT_RUNNING = frozenset({"terminated", "shutting-down"})

Answers = dict[str, str | None]


class DryRuns:
    """The dry runs of one provider. Nothing is created: every call that could has `DryRun`."""

    def __init__(self, account: Account, settings: Ec2Settings) -> None:
        self._account, self._settings = account, settings
        self._answers: Answers = {}

    async def run(self) -> tuple[Answers, frozenset[str]]:
        """Return the answer to each action, and the actions that need something of the fleet to be tried on.

        An answer is None if the action is allowed, or the code of AWS's refusal.
        Raises AwsNotAskedError.
        """
        reads = [*_READS]
        if any(one.capacity_reservation for one in self._options()):
            reads.append("DescribeCapacityReservations")
        region = pricing_region(self._account.region)
        await asyncio.gather(
            *(self._try(api) for api in reads),
            *(
                [self._read("pricing:GetProducts", partial(self._products, region))]
                if region
                else ()
            ),
            self._read("servicequotas:ListServiceQuotas", self._quotas),
        )
        untried = set()
        for trial in (self._launch, self._own_template, self._own_machine, self._own_disk):
            untried |= await trial()
        return self._answers, frozenset(untried)

    def _options(self) -> list[Any]:
        return [one for sku in self._settings.skus.values() for one in sku.options.values()]

    async def _try(self, api: str, **parameters: Any) -> None:
        self._answers[f"ec2:{api}"] = await self._account.refusal(api, **parameters)

    async def _read(self, action: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except AwsRefusedError as error:
            self._answers[action] = error.code
        else:
            self._answers[action] = None

    async def _products(self, region: str) -> None:
        await self._account.call(
            "GetProducts", "pricing", region, ServiceCode="AmazonEC2", MaxResults=1
        )

    async def _quotas(self) -> None:
        await self._account.call(
            "ListServiceQuotas", "service-quotas", ServiceCode="ec2", MaxResults=1
        )

    async def _launch(self) -> set[str]:
        """Try to launch a machine of the first SKU that has an image, as its launch template says."""
        for sku in self._settings.skus.values():
            try:
                image = (await find_image(self._account, sku)).row
                option = next(iter(sku.options.values()))
                data = template_data(self._settings, sku, image, option)
            except (ProviderError, AwsRefusedError):
                continue  # the check of the images reports it
            tags = tag_list(machine_tags(self._settings, sku))
            launch = _for_run_instances(data, self._settings.section.subnets[0])
            await self._try(
                "RunInstances",
                MinCount=1,
                MaxCount=1,
                InstanceType=(option.instance_types or ("",))[0],
                **launch,
            )
            await self._try(
                "CreateLaunchTemplate",
                LaunchTemplateName="autoscaler-doctor",
                LaunchTemplateData=data,
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
            )
            return set()
        return {"ec2:RunInstances", "ec2:CreateLaunchTemplate"}

    async def _own_template(self) -> set[str]:
        found = await self._first("DescribeLaunchTemplates", "LaunchTemplates")
        if found is None:
            return {"ec2:CreateFleet", "ec2:DeleteLaunchTemplate"}
        template = found["LaunchTemplateId"]
        specification = {"LaunchTemplateId": template, "Version": "$Default"}
        await self._try(
            "CreateFleet",
            Type="instant",
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
            LaunchTemplateConfigs=[{"LaunchTemplateSpecification": specification}],
            TagSpecifications=[{"ResourceType": "fleet", "Tags": self._fleet_tags()}],
        )
        await self._try("DeleteLaunchTemplate", LaunchTemplateId=template)
        return set()

    async def _own_machine(self) -> set[str]:
        found = await self._first("DescribeInstances", "Reservations")
        machines = [] if found is None else found["Instances"]
        running = [one for one in machines if one["State"]["Name"] not in _NOT_RUNNING]
        if not running:
            return {"ec2:TerminateInstances", "ec2:GetConsoleOutput"}
        machine = running[0]["InstanceId"]
        await self._try("TerminateInstances", InstanceIds=[machine])
        await self._try("GetConsoleOutput", InstanceId=machine)
        return set()

    async def _own_disk(self) -> set[str]:
        found = await self._first("DescribeVolumes", "Volumes")
        if found is None:
            return {"ec2:DeleteVolume"}
        await self._try("DeleteVolume", VolumeId=found["VolumeId"])
        return set()

    async def _first(self, api: str, key: str) -> Any:
        """Return the first thing of the fleet in a list, or None. A missing permission is reported as such."""
        try:
            answer = await self._account.call(
                api, Filters=[{"Name": f"tag:{FLEET}", "Values": [self._settings.fleet]}]
            )
        except AwsRefusedError:
            return None
        return next(iter(answer[key]), None)

    def _fleet_tags(self) -> list[dict[str, str]]:
        return tag_list({FLEET: self._settings.fleet})


def _for_run_instances(data: dict[str, Any], subnet: str) -> dict[str, Any]:
    """Return a launch template's data as parameters of RunInstances, in one subnet."""
    launch = dict(data)
    if "NetworkInterfaces" in launch:
        interfaces = [{**one, "SubnetId": subnet} for one in launch["NetworkInterfaces"]]
        return {**launch, "NetworkInterfaces": interfaces}
    return {**launch, "SubnetId": subnet}
