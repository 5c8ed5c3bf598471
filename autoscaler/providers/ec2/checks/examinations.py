"""Examines the account of each EC2 provider for `autoscaler doctor`: reads, dry runs, and what they show."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from autoscaler.config.configuration import Configuration
from autoscaler.config.examinations import Check, Examination, fine, unknown, wrong
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, Seconds
from autoscaler.providers.ec2.checks.account import Account, AwsNotAskedError, AwsRefusedError
from autoscaler.providers.ec2.checks.disk_keys import DiskKeys
from autoscaler.providers.ec2.checks.dry_runs import DryRuns
from autoscaler.providers.ec2.checks.images import find_image
from autoscaler.providers.ec2.checks.judgement import (
    DENIED,
    Egress,
    Rule,
    Subnet,
    judge_disk_key,
    judge_egress,
    judge_identity,
    judge_permissions,
    judge_queue,
    judge_quotas,
    judge_spot_role,
    judge_subnets,
    judge_types,
)
from autoscaler.providers.ec2.configuration import Ec2OptionKeys, Ec2Section
from autoscaler.providers.ec2.instance_types import InstanceTypeError, instance_type, quota
from autoscaler.providers.ec2.prices.quotas import QUOTA_CODES
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku, ec2_settings

_ANY_SHA256 = "0" * 64
_SPOT_ROLE = "AWSServiceRoleForEC2Spot"
_EVERYWHERE = frozenset({"0.0.0.0/0", "::/0"})
_NO_QUEUE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})

Run = Callable[[], Awaitable[Sequence[Check]]]


def examinations(configuration: Configuration, within: Seconds) -> Iterator[Examination]:
    """Return the checks of each EC2 provider."""
    for name, section in sections_of(configuration, Ec2Section):
        yield from _Provider(configuration, name, section, within).examinations()


async def runner_versions(configuration: Configuration, within: Seconds) -> dict[str, str]:
    """Return the version of actions/runner in each image that a recipe made, by the image's name."""
    found: dict[str, str] = {}
    for name, section in sections_of(configuration, Ec2Section):
        provider = _Provider(configuration, name, section, within)
        for sku in provider.settings().skus.values():
            try:
                image = await find_image(provider.account, sku)
            except (ProviderError, AwsRefusedError, AwsNotAskedError):
                continue  # the check of the images reports it
            if image.runner:
                found[image.row.name] = image.runner
    return found


class _Provider:
    """The checks of one provider."""

    def __init__(
        self, configuration: Configuration, name: str, section: Ec2Section, within: Seconds
    ) -> None:
        self._configuration = configuration
        self._name, self._section = name, section
        self.account = Account(section.region, within)

    def settings(self) -> Ec2Settings:
        """Return its settings as the controller has them, without an installation's id."""
        return ec2_settings(
            ProviderName(self._name),
            self._configuration.settings,
            self._configuration.path.parent,
            Installations(InstallationId("doctor")),
            _ANY_SHA256,
        )

    def examinations(self) -> Iterator[Examination]:
        """Return its checks. Each asks AWS by itself, so that one that fails hides no other."""
        runs: dict[str, Run] = {
            "identity": self._identity,
            "permissions": self._permissions,
            "subnets": self._subnets,
            "security groups": self._egress,
            "images": self._images,
            "disk keys": self._disk_keys,
            "instance types": self._types,
            "quotas": self._quotas,
        }
        if any(CapacityType.SPOT in option.capacity for option in self._options()):
            runs["spot role"] = self._spot_role
        if self._section.interruption_queue is not None:
            runs["interruption queue"] = partial(self._queue, self._section.interruption_queue)
        for name, run in runs.items():
            group = f"{self._name} (EC2 in {self._section.region})"
            yield Examination(group, name, partial(self._asked, name, run))

    async def _asked(self, name: str, run: Run) -> Sequence[Check]:
        try:
            return await run()
        except AwsNotAskedError as error:
            if name == "identity":
                why = "the controller can launch nothing"
                fix = "aws sts get-caller-identity, with the controller's credentials"
                return [wrong(name, str(error), why, fix)]
            return [unknown(name, str(error), "mend identity first, and look again")]
        except AwsRefusedError as error:
            extra = "allow it for this check: docs/commands.md, autoscaler doctor"
            return [unknown(name, str(error), extra if error.code in DENIED else "")]

    async def _identity(self) -> list[Check]:
        found = await self.account.call("GetCallerIdentity", "sts")
        return [judge_identity(found["Arn"], found["Account"], self._section.account)]

    async def _permissions(self) -> list[Check]:
        dry_runs = DryRuns(self.account, self.settings())
        return judge_permissions(*await dry_runs.run())

    async def _read_subnets(self) -> list[Subnet]:
        # By a filter: with SubnetIds, EC2 refuses the whole call if one does not exist.
        filters = [{"Name": "subnet-id", "Values": list(self._section.subnets)}]
        answer = await self.account.call("DescribeSubnets", Filters=filters)
        return [
            Subnet(one["SubnetId"], one["AvailabilityZone"], one["AvailableIpAddressCount"])
            for one in answer["Subnets"]
        ]

    async def _subnets(self) -> list[Check]:
        return judge_subnets(self._section.subnets, await self._read_subnets())

    async def _egress(self) -> list[Check]:
        filters = [{"Name": "group-id", "Values": list(self._section.security_groups)}]
        answer = await self.account.call("DescribeSecurityGroups", Filters=filters)
        rules = {
            one["GroupId"]: [_egress(rule) for rule in one["IpPermissionsEgress"]]
            for one in answer["SecurityGroups"]
        }
        return judge_egress(self._section.security_groups, rules)

    async def _images(self) -> list[Check]:
        return [await self._image(sku) for sku in self.settings().skus.values()]

    async def _image(self, sku: Ec2Sku) -> Check:
        name = f"image of {sku.name}"
        try:
            image = (await find_image(self.account, sku)).row
        except ProviderError as error:
            fix = (
                f"autoscaler images bake linux-gpu --region {self._section.region} "
                f"--subnet {self._section.subnets[0]}; or correct skus.{sku.name}.image"
            )
            return wrong(name, error.message, "the SKU's machines cannot be launched", fix)
        return fine(name, f"{image.id} ({image.name})")

    async def _types(self) -> list[Check]:
        zones = sorted({one.zone for one in await self._read_subnets()})
        if not zones:
            return [unknown("instance types", "EC2 shows no subnet", "mend the subnets first")]
        wanted = sorted({name for one in self._options() for name in one.instance_types or ()})
        answer = await self.account.call(
            "DescribeInstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[
                {"Name": "location", "Values": zones},
                {"Name": "instance-type", "Values": wanted},
            ],
        )
        sold: dict[str, list[str]] = {}
        for one in answer["InstanceTypeOfferings"]:
            sold.setdefault(one["InstanceType"], []).append(one["Location"])
        return judge_types(wanted, zones, sold)

    async def _quotas(self) -> list[Check]:
        values: dict[str, float] = {}
        token: dict[str, str] = {}
        while True:
            answer = await self.account.call(
                "ListServiceQuotas", "service-quotas", ServiceCode="ec2", MaxResults=100, **token
            )
            values |= {
                QUOTA_CODES[one["QuotaCode"]]: one["Value"]
                for one in answer["Quotas"]
                if one["QuotaCode"] in QUOTA_CODES and "Value" in one
            }
            if not answer.get("NextToken"):
                break
            token = {"NextToken": answer["NextToken"]}
        codes = {name: code for code, name in QUOTA_CODES.items()}
        return judge_quotas(self._section.region, self._needed(), values, codes)

    async def _spot_role(self) -> list[Check]:
        try:
            await self.account.call("GetRole", "iam", RoleName=_SPOT_ROLE)
        except AwsRefusedError as error:
            if error.code != "NoSuchEntity":
                raise
            return [judge_spot_role(exists=False)]
        return [judge_spot_role(exists=True)]

    async def _disk_keys(self) -> list[Check]:
        keys = DiskKeys(self.account)
        found = {sku.name: await keys.of(sku) for sku in self.settings().skus.values()}
        return [judge_disk_key(sku, key) for sku, key in found.items() if key is not None]

    async def _queue(self, url: str) -> list[Check]:
        name = "interruption queue"
        try:
            answer = await self.account.call(
                "GetQueueAttributes", "sqs", QueueUrl=url, AttributeNames=["QueueArn", "Policy"]
            )
        except AwsRefusedError as error:
            if error.code not in _NO_QUEUE:
                raise
            why = "nothing says before EC2 interrupts a spot machine"
            fix = "create it as docs/ec2.md, Interruptions says, or correct ec2.interruption_queue"
            return [wrong(name, "there is no such queue", why, fix)]
        shown = answer["Attributes"]
        rules = await self._rules(shown["QueueArn"])
        return [judge_queue(url, shown.get("Policy", ""), rules)]

    async def _rules(self, queue: str) -> list[Rule]:
        """Return the rules of EventBridge's default bus that send to a queue (EventBridge API Reference)."""
        answer = await self.account.call("ListRuleNamesByTarget", "events", TargetArn=queue)
        found = []
        for name in answer["RuleNames"]:
            rule = await self.account.call("DescribeRule", "events", Name=name)
            pattern = json.loads(rule.get("EventPattern") or "{}")
            found.append(Rule(name, rule["State"] == "ENABLED", pattern))
        return found

    def _options(self) -> list[Ec2OptionKeys]:
        """Return the launch options at this provider. Reads no file."""
        found = options_of(self._configuration, Ec2Section, Ec2OptionKeys)
        return [one.option for one in found if one.option.provider == self._name]

    def _needed(self) -> Mapping[str, int]:
        """Return the vCPUs of the smallest type by quota. Reservations have their quota already."""
        needed: dict[str, int] = {}
        for option in self._options():
            if option.capacity_reservation is not None:
                continue
            for kind in option.capacity:
                for name in option.instance_types or ():
                    try:
                        vcpus, of = instance_type(name).vcpus, quota(name, kind)
                    except InstanceTypeError:
                        continue  # `check` reports it
                    needed[of] = min(vcpus, needed.get(of, vcpus))
        return needed


def _egress(rule: Mapping[str, Any]) -> Egress:
    ranges = [one["CidrIp"] for one in rule.get("IpRanges", ())]
    ranges += [one["CidrIpv6"] for one in rule.get("Ipv6Ranges", ())]
    everywhere = not _EVERYWHERE.isdisjoint(ranges)
    return Egress(rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort"), everywhere)
