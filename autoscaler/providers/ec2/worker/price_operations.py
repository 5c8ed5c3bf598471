"""The calls to AWS that read prices, with small tuples as results.

Runs in the worker process only. Each function sends one request, without retries.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from autoscaler.providers.ec2.worker.clients import Arguments, Clients
from autoscaler.providers.ec2.worker.rows import PriceRow, SpotPriceRow


def get_products(clients: Clients, arguments: Arguments) -> tuple[list[PriceRow], str | None]:
    """Return one page of the on-demand prices of an `instance_type` in a `region` for an `os`.

    The filters are Karpenter's (pkg/providers/pricing). AWS lists a Windows type a second time at the
    Linux price, for customers with their own licence (aws/aws-sdk-js#1819). It lists bare metal as
    dedicated.
    """
    metal = ".metal" in arguments["instance_type"]
    wanted = {
        "regionCode": arguments["region"],
        "instanceType": arguments["instance_type"],
        "operatingSystem": "Windows" if arguments["os"] == "windows" else "Linux",
        "licenseModel": "No License required",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Dedicated" if metal else "Shared",
        "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
    }
    parameters: dict[str, Any] = {
        "ServiceCode": "AmazonEC2",
        "Filters": [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in wanted.items()],
        "MaxResults": 100,
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.pricing.get_products(**parameters)
    rows = [row for item in answer.get("PriceList", ()) for row in _listed(item)]
    return rows, answer.get("NextToken")


def _listed(item: str) -> Iterator[PriceRow]:
    """Return the prices above zero in one item, a JSON text; none if it has another format."""
    try:
        product: Any = json.loads(item)
        attributes = product["product"]["attributes"]
        kind, system = str(attributes["instanceType"]), str(attributes["operatingSystem"])
        for term in product["terms"]["OnDemand"].values():
            for dimension in term["priceDimensions"].values():
                dollars = float(dimension["pricePerUnit"]["USD"])
                if dollars > 0:
                    yield PriceRow(kind, system.lower(), dollars)
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def describe_spot_price_history(
    clients: Clients, arguments: Arguments
) -> tuple[list[SpotPriceRow], str | None]:
    """Return one page of the spot prices of `instance_types` at the time `at` (Unix seconds).

    For a start time without an end, EC2 returns the last change before it for each type, zone and
    product (EC2 API Reference, DescribeSpotPriceHistory).
    """
    parameters: dict[str, Any] = {
        "InstanceTypes": list(arguments["instance_types"]),
        "ProductDescriptions": list(arguments["products"]),
        "StartTime": datetime.fromtimestamp(arguments["at"], UTC),
        "MaxResults": 1000,
    }
    if arguments["page"]:
        parameters["NextToken"] = arguments["page"]
    answer = clients.ec2.describe_spot_price_history(**parameters)
    return [_spot(one) for one in answer["SpotPriceHistory"]], answer.get("NextToken")


def _spot(one: Mapping[str, Any]) -> SpotPriceRow:
    return SpotPriceRow(
        one["InstanceType"],
        one.get("AvailabilityZone", ""),
        one.get("ProductDescription", ""),
        one["SpotPrice"],
        one["Timestamp"].timestamp(),
    )
