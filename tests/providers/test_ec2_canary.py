"""Canary images: which launch requests use one, and that its errors do not stop the SKU."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.config.settings.sku import Canary
from autoscaler.controller.ports.provider import LaunchOrder, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import LaunchRequestId, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.requests import template_of
from autoscaler.providers.ec2.launching.templates import sku_for
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku, NamedImage
from autoscaler.providers.ec2.worker.rows import ImageRow
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi
from tests.providers.ec2_keys import with_keys
from tests.providers.test_ec2_requests import SETTINGS, SKU, order

CALLS = [LaunchRequestId(f"call-{number}") for number in range(2000)]


def with_canary(percent: float, name: str = "next-*") -> Ec2Sku:
    return replace(
        SKU,
        image=NamedImage(
            name=SKU.image.name, canary=Canary(name=name, owner="123456789012", percent=percent)
        ),
    )


def takes_canary(sku: Ec2Sku, call: LaunchRequestId) -> bool:
    return sku_for(sku, call).image.name == "next-*"


@pytest.mark.case(
    "a canary image for a share of the launches",
    topic="Images and disks",
    source="pytorch/test-infra scale-config.yml",
)
@pytest.mark.parametrize("percent", [1, 10, 50])
def test_the_canary_image_gets_its_percentage_of_launch_requests(percent: float) -> None:
    share = sum(takes_canary(with_canary(percent), call) for call in CALLS) / len(CALLS) * 100
    assert share == pytest.approx(percent, abs=2)


def test_a_percentage_of_0_gets_none_and_100_gets_all() -> None:
    assert not any(takes_canary(with_canary(0), call) for call in CALLS)
    assert all(takes_canary(with_canary(100), call) for call in CALLS)
    assert sku_for(SKU, CALLS[0]) is SKU


def test_a_launch_request_with_the_canary_keeps_it_when_the_percentage_grows() -> None:
    small = {call for call in CALLS if takes_canary(with_canary(10), call)}
    large = {call for call in CALLS if takes_canary(with_canary(30), call)}
    assert small < large


class TwoImages(ScriptedApi):
    """An EC2 with the SKU's own image and, if it is there, the canary's."""

    def __init__(self, canary_is_there: bool = True) -> None:
        super().__init__(self._answer)
        self._there = canary_is_there
        self.images: dict[str, str] = {}

    def _answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "DescribeSubnets":
            return [["subnet-a", "us-east-1a", 9], ["subnet-b", "us-east-1b", 9]]
        if operation == "DescribeImages":
            mine = arguments["name"] == "gpu-*" or self._there
            row = ImageRow(arguments["name"], "n", "2026-01-01", "x86_64", "/dev/xvda", 8)
            return [[list(row)] if mine else [], None]
        assert operation == "CreateLaunchTemplate"
        template = f"lt-{len(self.images)}"
        self.images[template] = arguments["data"]["ImageId"]
        return template


def provider(api: ScriptedApi, sku: Ec2Sku) -> Ec2Provider:
    settings: Ec2Settings = replace(
        with_keys(SETTINGS, account="123456789012"), skus={sku.name: sku}
    )
    return Ec2Provider(settings, RememberingTelemetry(), ManualClock(), api)


def spot_order(call: LaunchRequestId) -> LaunchOrder:
    return order(CapacityType.SPOT, launch_request=call)


async def test_requests_name_the_template_of_the_chosen_image() -> None:
    api, sku = TwoImages(), with_canary(50)
    ec2 = provider(api, sku)
    for call in CALLS[:20]:
        template = template_of(await ec2.prepare(spot_order(call)))
        assert api.images[template] == ("next-*" if takes_canary(sku, call) else "gpu-*")
    # Both images and both templates are remembered: no flapping between them.
    assert sorted(api.images.values()) == ["gpu-*", "next-*"]
    named = ec2.capabilities.image_name
    assert named is not None
    assert [named(image) for image in ("gpu-*", "next-*", "ami-0")] == ["n", "n", ""]
    assert [name for name, _ in api.calls].count("DescribeImages") == 2


@pytest.mark.case(
    "a canary image for a share of the launches",
    topic="Images and disks",
    source="pytorch/test-infra scale-config.yml",
)
async def test_preparing_a_launch_request_again_gives_the_same_bytes() -> None:
    ec2 = provider(TwoImages(), with_canary(50))
    for call in CALLS[:6]:
        assert await ec2.prepare(spot_order(call)) == await ec2.prepare(spot_order(call))


@pytest.mark.case(
    "a canary image for a share of the launches",
    topic="Images and disks",
    source="pytorch/test-infra scale-config.yml",
)
async def test_a_missing_canary_image_stops_only_the_canary() -> None:
    api = TwoImages(canary_is_there=False)
    ec2 = provider(api, with_canary(100))
    with capture_logs() as logs:
        template = template_of(await ec2.prepare(spot_order(CALLS[0])))
    assert api.images[template] == "gpu-*"
    (line,) = [line for line in logs if line["event"] == "canary_image_unusable"]
    assert line["sku"] == SKU.name
    assert "next-*" in line["error"]


async def test_without_a_canary_a_missing_image_is_reported() -> None:
    api = TwoImages(canary_is_there=False)
    with pytest.raises(ProviderError) as refusal:
        await provider(api, replace(SKU, image=NamedImage(name="gone-*"))).prepare(
            spot_order(CALLS[0])
        )
    assert refusal.value.failure is FailureClass.CONFIGURATION


async def test_a_canary_whose_runner_github_refuses_is_not_used() -> None:
    api = TwoImages()
    ec2 = provider(api, with_canary(100))
    for refused, taken in (("next-*", "gpu-*"), ("gpu-*", "next-*"), ("", "next-*")):
        one = replace(spot_order(CALLS[0]), refused_image=refused)
        assert api.images[template_of(await ec2.prepare(one))] == taken


async def test_after_a_new_read_the_new_image_is_launched() -> None:
    """A newer image closes a circuit breaker, so launches must not continue with the cached image."""
    api, sku = TwoImages(), SKU
    ec2 = provider(api, sku)
    await ec2.prepare(spot_order(CALLS[0]))
    for number in (2, 3):
        assert await ec2.image(sku.name) == "gpu-*"
        assert [name for name, _ in api.calls].count("DescribeImages") == number
    with pytest.raises(ProviderError, match="none is not a SKU on EC2"):
        await ec2.image(SkuName("none"))
