"""Simulates AWS's price list and spot price history for the instance types that a caller prices here.

An instance type without a price is in neither list.
Sources: AWS Billing API Reference, GetProducts; EC2 API Reference, DescribeSpotPriceHistory.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from autoscaler.model.catalogue import OperatingSystem
from lab.ec2.filters import Filters
from lab.ec2.paging import page_of
from lab.ec2.query import Ec2Error, Tree, answer, element, timestamp

SERVICE = "pricing"
CONTENT_TYPE = "application/x-amz-json-1.1"
ENDPOINTS = frozenset({"ap-south-1", "eu-central-1", "us-east-1"})
"""The regions with an endpoint of the Pricing API, except China's."""

MOST_IN_A_PAGE = 100
_PREFIX = "AWSPriceListService."
_FILTERS = frozenset({"availability-zone", "instance-type", "product-description"})
_WINDOWS_LICENCE = 0.5
"""Surcharge of other products, which shows which product a client selected."""


class _RefusedError(Exception):
    """The answer is an error of this name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class _Change(NamedTuple):
    """A spot price that holds from `at` on."""

    instance_type: str
    zone: str
    product: str
    dollars: float
    at: float


class PriceList:
    """The prices of a region. `denied` makes GetProducts fail; `empty_pages` is the number of its next
    answers that have a token and no product."""

    def __init__(self, region: str, now: Callable[[], float]) -> None:
        self.denied = False
        self.empty_pages = 0
        self._region = region
        self._now = now
        self._on_demand: dict[tuple[str, OperatingSystem], float] = {}
        self._changes: list[_Change] = []

    def set_on_demand(
        self, instance_type: str, dollars: float, os: OperatingSystem = OperatingSystem.LINUX
    ) -> None:
        """Set the on-demand price of a type in dollars per hour, licence included."""
        self._on_demand[instance_type, os] = dollars

    def set_spot(
        self, instance_type: str, zone: str, dollars: float, product: str = "Linux/UNIX"
    ) -> None:
        """Set the spot price of a type in a zone in dollars per hour, from now on."""
        self._changes.append(_Change(instance_type, zone, product, dollars, self._now()))

    def answer(self, target: str, endpoint: str, body: bytes) -> tuple[int, str]:
        """Return the HTTP status and body for a request to the Pricing API's endpoint in a region."""
        try:
            self._admit(target, endpoint)
            return 200, json.dumps(self._products(_read(body)))
        except _RefusedError as error:
            return 400, json.dumps({"__type": error.name, "Message": error.message})

    def _admit(self, target: str, endpoint: str) -> None:
        if endpoint not in ENDPOINTS:
            raise _RefusedError("InvalidSignatureException", f"No endpoint in {endpoint[:40]}")
        if target.removeprefix(_PREFIX) != "GetProducts":
            raise _RefusedError("UnknownOperationException", f"The lab does not do {target[:80]}")
        if self.denied:
            text = "User is not authorized to perform: pricing:GetProducts"
            raise _RefusedError("AccessDeniedException", text)

    def spot_history(self, params: Tree) -> str:
        """Answer DescribeSpotPriceHistory: changes in the requested time, and the last one before it.

        The newest come first, and the last page's token is empty (boto/boto3#130). Raises Ec2Error.
        """
        filters = Filters(params, _FILTERS)
        types, products = params.texts("InstanceType"), params.texts("ProductDescription")
        start = _moment(params, "StartTime", 0.0)
        end = _moment(params, "EndTime", self._now())
        latest: dict[tuple[str, str, str], _Change] = {}
        shown: list[_Change] = []
        for change in self._changes:
            if types and change.instance_type not in types:
                continue
            if products and change.product not in products:
                continue
            if not filters.admit(_attributes(change), {}) or change.at > end:
                continue
            if change.at > start:
                shown.append(change)
            else:
                latest[change[:3]] = change
        shown = sorted([*shown, *latest.values()], key=lambda change: -change.at)
        numbers = {change: number for number, change in enumerate(shown)}
        page, more = page_of(params, shown, lambda change: numbers[change], 1)
        content = element("spotPriceHistorySet", [_shown(change) for change in page])
        return answer("DescribeSpotPriceHistory", content + (more or element("nextToken", "")))

    def _products(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        size, token = asked.get("MaxResults", MOST_IN_A_PAGE), asked.get("NextToken", "0")
        if not isinstance(size, int) or not 1 <= size <= MOST_IN_A_PAGE:
            raise _RefusedError("InvalidParameterException", "MaxResults must be from 1 to 100")
        if not isinstance(token, str) or not token.isdecimal():
            raise _RefusedError("InvalidNextTokenException", "The token is not valid")
        if self.empty_pages > 0:
            self.empty_pages -= 1
            return {"FormatVersion": "aws_v1", "PriceList": [], "NextToken": token}
        wanted = [(one["Field"], one["Value"]) for one in asked.get("Filters", ())]
        found = [one for one in self._everything() if _fits(one, wanted)]
        start = int(token[:9])
        page = [json.dumps(one) for one in found[start : start + size]]
        more = {"NextToken": str(start + size)} if start + size < len(found) else {}
        return {"FormatVersion": "aws_v1", "PriceList": page} | more

    def _everything(self) -> Iterator[dict[str, Any]]:
        """Yield each type as AWS lists it, next to products with other tenancies, licences and regions."""
        for (name, os), dollars in self._on_demand.items():
            metal = ".metal" in name
            plain = {
                "instanceType": name,
                "regionCode": self._region,
                "operatingSystem": "Windows" if os is OperatingSystem.WINDOWS else "Linux",
                "licenseModel": "No License required",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "tenancy": "Dedicated" if metal else "Shared",
            }
            family = "Compute Instance (bare metal)" if metal else "Compute Instance"
            others: tuple[tuple[dict[str, str], float], ...] = (
                ({}, dollars),
                ({"tenancy": "Host"}, 0.0),
                ({"preInstalledSw": "SQL Ent"}, dollars + 10 * _WINDOWS_LICENCE),
                ({"capacitystatus": "AllocatedCapacityReservation"}, 0.0),
                ({"capacitystatus": "UnusedCapacityReservation"}, dollars + _WINDOWS_LICENCE),
                ({"licenseModel": "Bring your own license"}, dollars / 2),
                ({"regionCode": "elsewhere-1"}, dollars * 2),
                ({"instanceType": f"{name}x"}, dollars * 3),
            )
            for changes, price in others:
                yield _product(family, plain | changes, price)


def _product(family: str, attributes: dict[str, str], dollars: float) -> dict[str, Any]:
    dimension = {
        "unit": "Hrs",
        "description": f"${dollars} per On Demand {attributes['instanceType']} Instance Hour",
        "pricePerUnit": {"USD": f"{dollars:.10f}"},
    }
    return {
        "product": {"productFamily": family, "attributes": attributes, "sku": "LABSKU"},
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {"LABSKU.JRTCKXETXF": {"priceDimensions": {"LABSKU.RATE": dimension}}}
        },
        "version": "20261122000000",
    }


def _fits(product: Mapping[str, Any], wanted: list[tuple[str, str]]) -> bool:
    known = {
        "servicecode": "AmazonEC2",
        "productFamily": product["product"]["productFamily"],
        **product["product"]["attributes"],
    }
    return all(known.get(field) == value for field, value in wanted)


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        asked = json.loads(body or b"{}")
    except ValueError as error:
        raise _RefusedError("SerializationException", "The body is not JSON") from error
    if not isinstance(asked, dict) or asked.get("ServiceCode") != "AmazonEC2":
        raise _RefusedError("NotFoundException", "The lab has prices of AmazonEC2 only")
    return asked


def _moment(params: Tree, name: str, otherwise: float) -> float:
    if name not in params:
        return otherwise
    try:
        return datetime.fromisoformat(params.text(name)).timestamp()
    except ValueError as error:
        raise Ec2Error("InvalidParameterValue", f"{name} is no time") from error


def _attributes(change: _Change) -> dict[str, str]:
    return {
        "availability-zone": change.zone,
        "instance-type": change.instance_type,
        "product-description": change.product,
    }


def _shown(change: _Change) -> dict[str, str]:
    return {
        "instanceType": change.instance_type,
        "productDescription": change.product,
        "spotPrice": f"{change.dollars:.6f}",
        "timestamp": timestamp(change.at),
        "availabilityZone": change.zone,
    }
