"""Types that a zone does not offer: the provider does not request them, and EC2's errors if it did."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.provider import LaunchAnswer, ProviderError
from autoscaler.model.catalogue import Offering
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.ec2.errors import says_unsupported
from autoscaler.providers.ec2.launching.answers import launch_answer, refused_override
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings
from tests.providers.conftest import SKU
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi
from tests.providers.ec2_keys import with_keys

EAST = ProviderName("east")
A, B = "us-east-1a", "us-east-1e"
SUBNETS = [("subnet-0a", A, 100), ("subnet-0e", B, 100)]
NOT_THERE = (
    "Your requested instance type (g5.xlarge) is not supported in your requested Availability Zone "
    "(us-east-1e). Please retry your request by not specifying an Availability Zone or choosing "
    "us-east-1a, us-east-1b."
)
REQUEST: dict[str, Any] = {
    "TargetCapacitySpecification": {
        "TotalTargetCapacity": 2,
        "DefaultTargetCapacityType": "on-demand",
    },
    "LaunchTemplateConfigs": [
        {
            "Overrides": [
                {"InstanceType": kind, "SubnetId": subnet, "AvailabilityZone": zone}
                for kind in ("g5.xlarge", "g4dn.xlarge")
                for subnet, zone, _ in SUBNETS
            ]
        }
    ],
}


class Account:
    """Two zones; `pages` are DescribeInstanceTypeOfferings' pages, or what it raises."""

    def __init__(self, *pages: list[tuple[str, str]] | ProviderError) -> None:
        self.pages = list(pages)
        self.asked: list[Mapping[str, Any]] = []

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "GetCallerIdentity":
            return "123456789012"
        if operation == "DescribeSubnets":
            return SUBNETS
        assert operation == "DescribeInstanceTypeOfferings"
        self.asked.append(arguments)
        number = int(arguments["page"] or 0)
        page = self.pages[number]
        if isinstance(page, ProviderError):
            raise page
        return page, str(number + 1) if number + 1 < len(self.pages) else None


def provider_of(account: Account, settings: Ec2Settings) -> Ec2Provider:
    plain = with_keys(settings, account=None)
    return Ec2Provider(plain, RememberingTelemetry(), ManualClock(), ScriptedApi(account.answer))


def sold(provider: Ec2Provider) -> list[tuple[str, str]]:
    def of(one: Offering) -> tuple[str, str]:
        return one.instance_type, one.zone

    return [of(one) for one in provider.offerings(SKU, 0)]


@pytest.mark.case(
    "a zone does not sell an instance type: us-east-1e lacks most GPU types",
    topic="EC2's API",
    source="EC2: DescribeInstanceTypeOfferings",
)
async def test_pools_in_zones_that_do_not_offer_the_type_are_omitted(settings: Ec2Settings) -> None:
    # An empty page in the middle ends nothing: EC2 filters after it has cut the pages.
    account = Account([("g5.xlarge", A)], [], [("g4dn.xlarge", A), ("g4dn.xlarge", B)])
    provider = provider_of(account, settings)
    await provider.open()
    assert sold(provider) == [("g5.xlarge", A), ("g4dn.xlarge", A), ("g4dn.xlarge", B)]
    assert [one["zones"] for one in account.asked] == [[A, B]] * 3


async def test_opening_again_reads_the_offerings_again(settings: Ec2Settings) -> None:
    account = Account([("g5.xlarge", A), ("g5.xlarge", B), ("g4dn.xlarge", A)])
    provider = provider_of(account, settings)
    await provider.open()
    account.pages = [[("g5.xlarge", A), ("g4dn.xlarge", A), ("g4dn.xlarge", B)]]
    assert ("g5.xlarge", B) in sold(provider)
    await provider.open()
    assert sold(provider) == [("g5.xlarge", A), ("g4dn.xlarge", A), ("g4dn.xlarge", B)]


async def test_a_type_that_no_zone_offers_is_reported(settings: Ec2Settings) -> None:
    provider = provider_of(Account([("g5.xlarge", A), ("g5.xlarge", B)]), settings)
    await provider.open()
    with capture_logs() as logs:
        assert sold(provider) == [("g5.xlarge", A), ("g5.xlarge", B)]
    (reported,) = logs
    assert reported["event"] == "instance_type_not_sold"
    assert (reported["instance_type"], reported["zones"]) == ("g4dn.xlarge", (A, B))


async def test_a_type_that_no_zone_offers_is_logged_once_until_that_changes(
    settings: Ec2Settings,
) -> None:
    nowhere = [("g5.xlarge", A), ("g5.xlarge", B)]
    somewhere = [*nowhere, ("g4dn.xlarge", B)]
    account = Account(nowhere)
    provider = provider_of(account, settings)
    with capture_logs() as logs:
        for pages in (nowhere, nowhere, somewhere, nowhere):
            account.pages = [pages]
            await provider.open()
            for _ in range(3):  # as a new price does
                sold(provider)
    events = [one["instance_type"] for one in logs if one["event"] == "instance_type_not_sold"]
    assert events == ["g4dn.xlarge"] * 2


async def test_without_permission_to_list_offerings_every_pool_is_used(
    settings: Ec2Settings,
) -> None:
    denied = ProviderError(FailureClass.CONFIGURATION, "UnauthorizedOperation", "no")
    provider = provider_of(Account(denied), settings)
    with capture_logs() as logs:
        await provider.open()
    assert [one["event"] for one in logs] == ["instance_type_offerings_not_read"]
    assert len(sold(provider)) == 4


async def test_without_an_answer_the_provider_is_not_opened(
    settings: Ec2Settings,
) -> None:
    later = ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")
    with pytest.raises(ProviderError, match="RequestLimitExceeded"):
        await provider_of(Account([("g5.xlarge", A)], later), settings).open()


def answered(*errors: tuple[str, str, str, str], given: int = 0) -> LaunchAnswer:
    machines = [[f"i-{n}", "g5.xlarge", A, "on-demand"] for n in range(given)]
    return launch_answer(EAST, REQUEST, (machines, [list(one) for one in errors]), "")


def test_a_zone_that_does_not_offer_the_type_has_its_own_failure_class() -> None:
    answer = answered(("InvalidFleetConfiguration", NOT_THERE, "g5.xlarge", B))
    (failure,) = answer.failures
    assert failure.failure is FailureClass.UNSUPPORTED
    assert failure.offering == f"east/g5.xlarge/{B}/on-demand"


NOT_TRIED = ("UnfulfillableCapacity", "Unable to fulfill capacity", "g4dn.xlarge", B)


@pytest.mark.case(
    "UnfulfillableCapacity for pools that an instant fleet did not try",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "InvalidFleetConfiguration", "SomethingNew"])
def test_unfulfillable_capacity_beside_a_concrete_code_was_not_tried(code: str) -> None:
    answer = answered(NOT_TRIED, (code, "words", "g5.xlarge", A), NOT_TRIED)
    assert [one.code for one in answer.failures] == [code]


@pytest.mark.parametrize("given", [0, 1])
def test_unfulfillable_capacity_alone_means_no_capacity(given: int) -> None:
    answer = answered(NOT_TRIED, given=given)
    assert [(one.failure, one.code) for one in answer.failures] == [
        (FailureClass.CAPACITY, "UnfulfillableCapacity")
    ]


@pytest.mark.parametrize(
    ("code", "message", "unsupported"),
    [
        ("InvalidFleetConfiguration", NOT_THERE, True),
        ("Unsupported", NOT_THERE, True),
        ("Unsupported", "The requested configuration is currently not supported.", False),
        ("Unsupported", NOT_THERE.replace("is not", "is currently not"), False),
        ("InvalidFleetConfiguration", "the security group does not exist", False),
        ("InvalidFleetConfiguration", "no subnet is in the Availability Zone us-east-1e", False),
        ("InvalidParameterCombination", "Enclaves are not supported on g5.xlarge.", False),
        ("Unsupported", "The boot mode of the image is not supported on g5.xlarge.", False),
        ("InsufficientInstanceCapacity", NOT_THERE, False),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "not supported", False),
        ("SomethingNew", NOT_THERE, False),
    ],
)
def test_errors_for_a_zone_that_does_not_offer_a_type_are_recognized(
    code: str, message: str, unsupported: bool
) -> None:
    assert says_unsupported(code, message) is unsupported


def refusal(message: str, code: str = "InvalidFleetConfiguration") -> str | None:
    error = ProviderError(FailureClass.CONFIGURATION, code, message, retry_after=7.0)
    refused = refused_override(EAST, json.loads(json.dumps(REQUEST)), error)
    if refused is None:
        return None
    assert refused[1].failure is FailureClass.UNSUPPORTED
    assert (refused[1].scope, refused[1].retry_after) == (None, 7.0)
    return refused[1].offering


def test_a_request_refused_because_of_one_pool_is_reported_for_that_pool() -> None:
    assert refusal(NOT_THERE) == f"east/g5.xlarge/{B}/on-demand"
    assert refusal(NOT_THERE, "Unsupported") == f"east/g5.xlarge/{B}/on-demand"
    assert refusal(NOT_THERE.replace("(us-east-1e)", "(us-east-1z)")) is None
    assert refusal(NOT_THERE.replace("g5.xlarge", "g5.xlarge2")) is None
    assert refusal("the security group does not exist") is None


@pytest.mark.parametrize(
    ("code", "message", "named"),
    [
        ("Unsupported", NOT_THERE, "g5.xlarge/us-east-1e"),
        ("InsufficientFreeAddressesInSubnet", "subnet-0a is full", "g5.xlarge/us-east-1a"),
    ],
)
async def test_a_refused_request_raises_whatever_it_names(
    settings: Ec2Settings, code: str, message: str, named: str
) -> None:
    # Only an error leaves the first request open: an answer would settle it.
    scope = FailureScope.ZONE if named.endswith("a") else None

    def answer(operation: str, arguments: Mapping[str, Any]) -> Any:
        assert operation == "CreateFleet"
        raise ProviderError(FailureClass.CAPACITY, code, message, None, scope)

    telemetry, api = RememberingTelemetry(), ScriptedApi(answer)
    provider = Ec2Provider(settings, telemetry, ManualClock(), api)
    template = {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "1"}}
    request = {**REQUEST, "LaunchTemplateConfigs": [REQUEST["LaunchTemplateConfigs"][0] | template]}
    with pytest.raises(ProviderError, match=code) as refusal:
        await provider.launch(json.dumps(request))
    assert refusal.value.offering == f"{settings.name}/{named}/on-demand"


def test_a_full_subnet_is_named_in_the_failure() -> None:
    code = "InsufficientFreeAddressesInSubnet"
    error = ProviderError(FailureClass.QUOTA, code, "subnet-0e is full", None, FailureScope.ZONE)
    refused = refused_override(EAST, REQUEST, error)
    assert refused is not None
    assert refused[0] == "subnet-0e"
    assert refused[1].failure is FailureClass.QUOTA
    assert (refused[1].scope, refused[1].offering) == (
        FailureScope.ZONE,
        f"east/g5.xlarge/{B}/on-demand",
    )
