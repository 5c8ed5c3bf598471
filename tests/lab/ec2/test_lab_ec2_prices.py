"""The lab's price list and spot price history, through the real SDK and as the product reads them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.providers.ec2.instance_types import pricing_region
from autoscaler.providers.ec2.prices.reading import read_on_demand, read_spot
from autoscaler.providers.ec2.worker.process import Clients
from lab.ec2.service import LabEc2
from tests.lab.ec2.harness import Fixture, connect

LINUX, WINDOWS = OperatingSystem.LINUX, OperatingSystem.WINDOWS


class Worker:
    """An Api whose calls are the worker's own, through the real SDK to the lab."""

    def __init__(self, lab: LabEc2) -> None:
        def client(service: str) -> Any:
            make: Any = boto3.client
            there = pricing_region(lab.region) if service == "pricing" else lab.region
            return make(
                service,
                region_name=there,
                endpoint_url=lab.endpoint_url,
                aws_access_key_id="lab",
                aws_secret_access_key="lab",
                config=Config(retries={"total_max_attempts": 1}),
            )

        self._clients = Clients(client)

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        return await asyncio.to_thread(self._clients.call, operation, arguments)

    async def close(self) -> None: ...


@pytest.mark.case(
    "AWS lists Windows twice, once at the Linux price for an own licence",
    topic="EC2's API",
    source="aws-sdk-js#1819",
)
async def test_the_price_list_filter_finds_exactly_one_product(ec2: Fixture) -> None:
    """The list also has products with own licences, SQL Server, reservations and dedicated hosts."""
    prices = ec2.lab.prices
    prices.set_on_demand("g5.xlarge", 1.123)
    prices.set_on_demand("g4dn.xlarge", 0.71)
    prices.set_on_demand("g4dn.xlarge", 0.894, WINDOWS)
    prices.set_on_demand("g4dn.metal", 9.78)
    wanted = [
        ("g5.xlarge", LINUX),
        ("g4dn.xlarge", WINDOWS),
        ("g4dn.metal", LINUX),
        ("p5.48xlarge", LINUX),
    ]
    worker = Worker(ec2.lab)
    for _ in range(2):
        found = await read_on_demand(worker, ec2.lab.region, wanted, 1.8e9)
        assert {(p.instance_type, p.os): p.dollars_per_hour for p in found.prices} == {
            ("g5.xlarge", LINUX): 1.123,
            ("g4dn.xlarge", WINDOWS): 0.894,
            ("g4dn.metal", LINUX): 9.78,
        }
        prices.empty_pages = 1


async def test_products_are_listed_in_pages_and_can_be_refused(ec2: Fixture) -> None:
    sdk = connect(ec2.lab, "pricing", "us-east-1")
    for number in range(3):
        ec2.lab.prices.set_on_demand(f"g{number}.xlarge", 1.0)
    everything = (await sdk("get_products", ServiceCode="AmazonEC2"))["PriceList"]
    pages, token = [], ""
    while True:
        more = {"NextToken": token} if token else {}
        page = await sdk("get_products", ServiceCode="AmazonEC2", MaxResults=7, **more)
        pages += page["PriceList"]
        token = page.get("NextToken", "")
        if not token:
            break
    assert pages == everything
    assert len(everything) == 24
    ec2.lab.prices.denied = True
    with pytest.raises(ClientError, match="AccessDeniedException"):
        await sdk("get_products", ServiceCode="AmazonEC2")
    elsewhere = connect(ec2.lab, "pricing", "us-west-2")
    with pytest.raises(ClientError, match="InvalidSignatureException"):
        await elsewhere("get_products", ServiceCode="AmazonEC2")


async def test_a_spot_price_applies_from_its_change(ec2: Fixture) -> None:
    prices, (zone, other, _) = ec2.lab.prices, ec2.network.zones
    prices.set_spot("g5.xlarge", zone, 0.4)
    prices.set_spot("g5.xlarge", other, 0.6)
    prices.set_spot("g5.xlarge", zone, 0.9, "Windows")
    prices.set_spot("g6.xlarge", zone, 0.3)
    first = ec2.clock.now()
    await ec2.clock.advance(3600.0)
    prices.set_spot("g5.xlarge", zone, 0.5)
    await ec2.clock.advance(60.0)
    worker = Worker(ec2.lab)

    async def now(moment: float) -> dict[str, float]:
        found = await read_spot(worker, [("g5.xlarge", LINUX)], moment)
        assert {one.capacity_type for one in found.prices} == {CapacityType.SPOT}
        return {one.zone: one.dollars_per_hour for one in found.prices}

    assert await now(ec2.clock.now()) == {zone: 0.5, other: 0.6}
    ec2.lab.faults.empty_pages("DescribeSpotPriceHistory", 1)
    assert await now(ec2.clock.now()) == {zone: 0.5, other: 0.6}
    both = await read_spot(worker, [("g5.xlarge", WINDOWS)], ec2.clock.now())
    assert [(one.zone, one.dollars_per_hour) for one in both.prices] == [(zone, 0.9)]
    history = await ec2.sdk(
        "describe_spot_price_history", InstanceTypes=["g5.xlarge"], StartTime=first + 1
    )
    changes = [(one["SpotPrice"], one["ProductDescription"]) for one in history["SpotPriceHistory"]]
    assert changes[0] == ("0.500000", "Linux/UNIX"), "the newest first"
    assert len(changes) == 4
    assert history["NextToken"] == ""
    page = await ec2.sdk("describe_spot_price_history", MaxResults=2)
    rest = await ec2.sdk("describe_spot_price_history", MaxResults=5, NextToken=page["NextToken"])
    assert len(page["SpotPriceHistory"]) + len(rest["SpotPriceHistory"]) == 5
