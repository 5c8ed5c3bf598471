"""AWS' prices: which are read, which are used, and what is used before that."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.controller.ports.capabilities import PriceAnswer
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.prices_and_quotas import Price, PriceSource
from autoscaler.providers.ec2.configuration import Ec2Section
from autoscaler.providers.ec2.instance_types import (
    ELSEWHERE,
    InstanceTypeError,
    Prices,
    has_spot_dollars,
    instance_type,
    pricing_region,
)
from autoscaler.providers.ec2.prices.price_book import SPOT_KEPT_FOR, Ec2Prices
from autoscaler.providers.ec2.prices.reading import (
    FAILURES_IN_A_ROW,
    MAX_PAGES,
    TYPES_AT_ONCE,
    read_on_demand,
    read_spot,
)
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.process import Clients
from tests.providers.doubles import ManualClock, ScriptedApi
from tests.providers.ec2_keys import with_keys

LINUX, WINDOWS = OperatingSystem.LINUX, OperatingSystem.WINDOWS
ON_DEMAND, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT
NOW = 1.8e9
ENDLESS = "EndlessPages: the pages of {} never end"
G5 = Price(ON_DEMAND, "g5.xlarge", LINUX, "", 1.123, NOW)
G5_SPOT = Price(SPOT, "g5.xlarge", LINUX, "us-east-1a", 0.4, NOW)
WANTED = {
    ON_DEMAND: {("g5.xlarge", LINUX), ("g4dn.xlarge", WINDOWS)},
    SPOT: {("g5.xlarge", LINUX)},
}


@pytest.mark.case(
    "China lists prices in yuan, GovCloud has no endpoint of the Pricing API",
    topic="EC2's API",
    source="Karpenter#2846; Karpenter#4677",
)
@pytest.mark.parametrize(
    ("region", "endpoint", "spot"),
    [
        ("us-east-1", "us-east-1", True),
        ("us-west-2", "us-east-1", True),
        ("ca-central-1", "us-east-1", True),
        ("eu-west-1", "eu-central-1", True),
        ("ap-northeast-2", "ap-south-1", True),
        ("us-gov-west-1", None, True),
        ("cn-north-1", None, False),
        ("eusc-de-east-1", None, False),
        ("eu-isoe-west-1", None, True),
        ("us-iso-east-1", None, True),
    ],
)
def test_each_region_has_its_endpoint_for_prices_in_dollars(
    region: str, endpoint: str | None, spot: bool
) -> None:
    """Like Karpenter: prices in yuan and euros are not used, and GovCloud has no endpoint."""
    assert pricing_region(region) == endpoint
    assert has_spot_dollars(region) is spot


def test_a_listed_price_comes_before_the_table_and_the_operators_before_it() -> None:
    listed = {("g5.xlarge", LINUX): 1.123, ("g4dn.xlarge", WINDOWS): 0.9}
    prices = Prices("eu-west-1", {}, 0.5, listed)
    g5, g4 = instance_type("g5.xlarge"), instance_type("g4dn.xlarge")
    assert g5.dollars_per_hour(LINUX, prices) == 1.123
    assert g4.dollars_per_hour(WINDOWS, prices) == pytest.approx(0.9)
    # The licence, 4 vCPUs of 0.046, is not cheaper as spot.
    assert g4.dollars_per_hour(WINDOWS, prices, SPOT) == pytest.approx((0.9 - 0.184) / 2 + 0.184)
    own = replace(prices, overrides={"g5.xlarge": 0.7})
    assert g5.dollars_per_hour(LINUX, own) == 0.7


def test_until_it_is_listed_a_type_counts_at_twice_the_tables_price_in_another_region() -> None:
    """A dollar limit stays safe, because no region costs twice as much."""
    g5 = instance_type("g5.xlarge")
    assert g5.dollars_per_hour(LINUX, Prices("sa-east-1")) == pytest.approx(ELSEWHERE * 1.006)
    assert g5.dollars_per_hour(LINUX, Prices("us-east-1")) == 1.006
    for region in ("cn-north-1", "us-gov-west-1"):
        with pytest.raises(InstanceTypeError, match=f"g5.xlarge in {region}"):
            g5.dollars_per_hour(LINUX, Prices(region))


def prices_of(
    region: str,
    overrides: Mapping[str, float] | None = None,
    api: ScriptedApi | None = None,
    clock: ManualClock | None = None,
) -> Ec2Prices:
    """Return the prices of WANTED in a region. AWS lists none."""
    settings = Ec2Settings(
        ProviderName("east"),
        "ci",
        Installations(InstallationId("0badcafe")),
        Ec2Section(
            region=region,
            subnets=("subnet-1",),
            security_groups=("sg-1",),
            prices=overrides or {},
        ),
        {},
        offered={kind: frozenset(types) for kind, types in WANTED.items()},
    )
    nothing = ScriptedApi(lambda *_: ([], None))
    return Ec2Prices(settings, api or nothing, clock or ManualClock(NOW))


async def test_an_on_demand_price_of_the_operator_is_not_read() -> None:
    api = ScriptedApi(lambda *_: ([], None))
    book = prices_of("eu-west-1", {"g4dn.xlarge": 0.5}, api)
    await book.read_prices(ON_DEMAND)
    assert [one["instance_type"] for _, one in api.calls] == ["g5.xlarge"]


def test_each_price_shows_its_source() -> None:
    book = prices_of("eu-west-1", {"g4dn.xlarge": 0.5})
    sources = book.price_sources(ON_DEMAND)
    assert (sources[PriceSource.CONFIGURED], sources[PriceSource.BUILT_IN]) == (1, 1)
    assert book.use_prices([G5], PriceSource.CACHE)
    assert book.price_sources(ON_DEMAND)[PriceSource.CACHE] == 1
    assert not book.use_prices([G5], PriceSource.API), "the same price"
    sources = book.price_sources(ON_DEMAND)
    assert (
        sources[PriceSource.API],
        sources[PriceSource.CACHE],
        sources[PriceSource.BUILT_IN],
    ) == (
        1,
        0,
        0,
    )
    assert book.listed().listed == {("g5.xlarge", LINUX): 1.123}
    assert book.use_prices([replace(G5, dollars_per_hour=1.2)], PriceSource.API)


def test_a_price_that_aws_no_longer_lists_stays_in_use() -> None:
    book = prices_of("eu-west-1")
    book.use_prices([G5], PriceSource.API)
    assert not book.use_prices([], PriceSource.API)
    assert book.listed().listed == {("g5.xlarge", LINUX): 1.123}


def test_the_table_of_a_newer_version_comes_before_an_older_cache() -> None:
    before = datetime(2026, 7, 19, tzinfo=UTC).timestamp()
    book = prices_of("us-east-1")
    assert not book.use_prices([replace(G5, read_at=before)], PriceSource.CACHE)
    assert book.use_prices([replace(G5, read_at=before + 2 * 86400)], PriceSource.CACHE)
    # Elsewhere an old price is still better than twice the table's.
    assert prices_of("eu-west-1").use_prices([replace(G5, read_at=before)], PriceSource.CACHE)


def test_a_spot_price_is_used_for_a_day() -> None:
    clock = ManualClock(NOW)
    book = prices_of("us-east-1", clock=clock)
    assert book.use_prices([G5_SPOT], PriceSource.API)
    assert book.price_sources(SPOT)[PriceSource.API] == 1
    clock.time = NOW + SPOT_KEPT_FOR
    assert book.known_prices(SPOT) == (G5_SPOT,)
    clock.time = NOW + SPOT_KEPT_FOR + 1
    assert book.known_prices(SPOT) == ()
    assert book.price_sources(SPOT)[PriceSource.API] == 0
    assert book.listed().listed == {}, "limits count on demand"


class Listing:
    """An Api that answers in pages: an error, or rows, by operation and page number."""

    def __init__(self, **pages: list[Any]) -> None:
        self.pages = pages

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        pages = self.pages[operation]
        number = int(arguments["page"] or 0)
        return pages[number], str(number + 1) if number + 1 < len(pages) else ""


async def test_only_prices_of_configured_instance_types_are_requested() -> None:
    listing = Listing(
        GetProducts=[[["g5.xlarge", "linux", 1.1]], [], [["g5.xlarge", "linux", 1.3]]]
    )
    api = ScriptedApi(listing.answer)
    wanted = [("g5.xlarge", LINUX), ("g4dn.xlarge", WINDOWS)]
    found = await read_on_demand(api, "eu-west-1", wanted, NOW)
    # The most expensive of several prices, after an empty page; types that are not listed are omitted.
    assert found == PriceAnswer((replace(G5, dollars_per_hour=1.3),))
    asked = [(a["instance_type"], a["os"], a["region"]) for _, a in api.calls if not a["page"]]
    assert asked == [("g4dn.xlarge", "windows", "eu-west-1"), ("g5.xlarge", "linux", "eu-west-1")]


@pytest.mark.case(
    "the history of spot prices lists other types, ends with an empty token, or never ends",
    topic="EC2's API",
    source="amazonica#97; aws-sdk-java-v2#927",
)
async def test_only_the_newest_spot_price_of_each_zone_is_read() -> None:
    rows = [
        ["g5.xlarge", "a", "Linux/UNIX", "0.5", NOW - 60],
        ["g5.xlarge", "a", "Linux/UNIX (Amazon VPC)", "0.4", NOW - 7200],
        ["g5.xlarge", "b", "Linux/UNIX", "0.6", NOW - 10],
        ["g5.xlarge", "d", "Linux/UNIX", "10000", NOW],
        ["g5.xlarge", "a", "Windows", "9", NOW],
        ["g6.xlarge", "a", "Linux/UNIX", "9", NOW],
        ["g5.xlarge", "c", "SUSE Linux", "9", NOW],
        ["g5.xlarge", "c", "Linux/UNIX", "nonsense", NOW],
        ["g5.xlarge", "c", "Linux/UNIX", "10000.01", NOW],
        ["g5.xlarge", "c", "Linux/UNIX", "nan", NOW],
    ]
    listing = Listing(DescribeSpotPriceHistory=[rows[:1], [], rows[1:]])
    api = ScriptedApi(listing.answer)
    found = await read_spot(api, [("g5.xlarge", LINUX)], NOW)
    prices = {one.zone: one.dollars_per_hour for one in found.prices}
    assert prices == {"a": 0.5, "b": 0.6, "d": 10_000.0}
    _, first = api.calls[0]
    assert first["products"] == ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
    assert (first["instance_types"], first["at"]) == (["g5.xlarge"], NOW)


@pytest.mark.case(
    "the history of spot prices lists other types, ends with an empty token, or never ends",
    topic="EC2's API",
    source="amazonica#97; aws-sdk-java-v2#927",
)
async def test_an_endless_price_list_is_an_error() -> None:
    same = ScriptedApi(lambda *_: ([], "again"))
    answer = await read_spot(same, [("g5.xlarge", LINUX)], NOW)
    assert str(answer.problem) == ENDLESS.format("DescribeSpotPriceHistory")
    assert len(same.calls) == 2
    grows = ScriptedApi(lambda _, arguments: ([], f"{arguments['page']}x"))
    answer = await read_on_demand(grows, "eu-west-1", [("g5.xlarge", LINUX)], NOW)
    assert str(answer.problem) == ENDLESS.format("GetProducts")
    assert len(grows.calls) == MAX_PAGES


def test_a_readers_spot_prices_by_source_are_those_of_a_day(settings: Ec2Settings) -> None:
    offered = {CapacityType.SPOT: frozenset({("g5.xlarge", LINUX)})}
    clock = ManualClock()
    reader = Ec2Prices(replace(settings, offered=offered), ScriptedApi(lambda *_: None), clock)
    price = Price(CapacityType.SPOT, "g5.xlarge", LINUX, "us-east-1a", 0.4, clock.time)
    assert reader.use_prices([price], PriceSource.API)
    assert reader.price_sources(CapacityType.SPOT)[PriceSource.API] == 1
    clock.time += 25 * 3600.0
    assert reader.price_sources(CapacityType.SPOT)[PriceSource.API] == 0


async def test_a_reader_asks_for_the_prices_of_what_is_offered(settings: Ec2Settings) -> None:
    offered = {
        CapacityType.SPOT: frozenset({("g5.xlarge", LINUX)}),
        CapacityType.ON_DEMAND: frozenset({("g6.xlarge", LINUX)}),
    }
    api = ScriptedApi(lambda *_: ([], None))
    reader = Ec2Prices(replace(settings, offered=offered), api, ManualClock())
    await reader.read_prices(CapacityType.SPOT)
    await reader.read_prices(CapacityType.ON_DEMAND)
    (spot, spot_asked), (on_demand, on_demand_asked) = api.calls
    assert (spot, on_demand) == ("DescribeSpotPriceHistory", "GetProducts")
    assert "g5.xlarge" in str(spot_asked)
    assert "g6.xlarge" in str(on_demand_asked)


THROTTLED = ProviderError(FailureClass.THROTTLED, "ThrottlingException", "later")


@pytest.mark.case(
    "one request for prices fails among many (`ThrottlingException`, `InternalErrorException`): "
    "its prices stay as they were, the others are used "
    "and kept",
    topic="EC2's API",
    source="AWS: GetProducts",
)
async def test_a_request_that_fails_leaves_out_its_own_prices_alone() -> None:
    def answer(_: str, arguments: Mapping[str, Any]) -> Any:
        name = arguments["instance_type"]
        if name == "g5.xlarge" and arguments["page"]:
            raise THROTTLED
        if name == "g6.xlarge":
            raise OutcomeUnknownError("time-out")
        return [[name, "linux", 1.1]], "more" if name == "g5.xlarge" else ""

    wanted = [(name, LINUX) for name in ("g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g6e.xlarge")]
    found = await read_on_demand(ScriptedApi(answer), "eu-west-1", wanted, NOW)
    assert [one.instance_type for one in found.prices] == ["g4dn.xlarge", "g6e.xlarge"]
    assert found.problem is THROTTLED, "the first one; a list that was cut has no dearest price"


async def test_a_spot_request_that_fails_leaves_out_its_own_types_alone() -> None:
    def answer(_: str, arguments: Mapping[str, Any]) -> Any:
        if "t000" in arguments["instance_types"]:
            raise THROTTLED
        return [[name, "a", "Linux/UNIX", "0.5", NOW] for name in arguments["instance_types"]], ""

    wanted = [(f"t{number:03}", LINUX) for number in range(TYPES_AT_ONCE + 1)]
    found = await read_spot(ScriptedApi(answer), wanted, NOW)
    assert [one.instance_type for one in found.prices] == [f"t{TYPES_AT_ONCE}"]
    assert found.problem is THROTTLED


async def test_after_some_consecutive_failures_no_more_prices_are_requested() -> None:
    def answer(_: str, arguments: Mapping[str, Any]) -> Any:
        if arguments["instance_type"] in {"t02", *(f"t{number:02}" for number in range(4, 20))}:
            raise THROTTLED
        return [[arguments["instance_type"], "linux", 1.1]], ""

    api = ScriptedApi(answer)
    wanted = [(f"t{number:02}", LINUX) for number in range(20)]
    found = await read_on_demand(api, "eu-west-1", wanted, NOW)
    assert [one.instance_type for one in found.prices] == ["t00", "t01", "t03"]
    assert len(api.calls) == 4 + FAILURES_IN_A_ROW


def test_the_known_prices_are_the_listed_ones_of_the_configured_types() -> None:
    book = prices_of("eu-west-1")
    book.use_prices([G5, replace(G5, instance_type="p5.48xlarge"), G5_SPOT], PriceSource.CACHE)
    assert book.known_prices(ON_DEMAND) == (G5,), "a type that the file no longer names is dropped"
    assert book.known_prices(SPOT) == (G5_SPOT,)


@pytest.mark.parametrize(
    ("region", "kinds"),
    [
        ("us-east-1", {ON_DEMAND, SPOT}),
        ("us-gov-west-1", {SPOT}),
        ("cn-north-1", set()),
    ],
)
async def test_prices_of_regions_without_dollars_are_never_requested(
    settings: Ec2Settings, region: str, kinds: set[CapacityType]
) -> None:
    offered = {kind: frozenset(types) for kind, types in WANTED.items()}
    there = replace(with_keys(settings, region=region), offered=offered)
    prices = Ec2Prices(there, ScriptedApi(lambda *_: ([], None)), ManualClock())
    assert set(prices.price_kinds) == kinds
    nothing_bought = replace(there, offered={})
    assert not Ec2Prices(nothing_bought, ScriptedApi(lambda *_: None), ManualClock()).price_kinds


class Aws:
    """A client of AWS, whose answer is given and whose parameters are kept."""

    def __init__(self, **answer: Any) -> None:
        self._answer = answer
        self.asked: dict[str, Any] = {}

    def get_products(self, **parameters: Any) -> dict[str, Any]:
        self.asked = parameters
        return self._answer

    def describe_spot_price_history(self, **parameters: Any) -> dict[str, Any]:
        self.asked = parameters
        return self._answer


def product(dollars: str, **attributes: str) -> str:
    known = {"instanceType": "g5.xlarge", "operatingSystem": "Linux"} | attributes
    dimension = {"pricePerUnit": {"USD": dollars}}
    terms = {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}}
    return json.dumps({"product": {"attributes": known}, "terms": terms})


def ask(name: str, os: str, page: str | None = None) -> dict[str, Any]:
    return {"region": "eu-west-1", "instance_type": name, "os": os, "page": page}


@pytest.mark.case(
    "prices differ by region and change: the controller reads them from AWS, and the store keeps "
    "them",
    topic="EC2's API",
    source="Karpenter's pricing provider; AWS: GetProducts",
)
@pytest.mark.case(
    "AWS lists Windows twice, once at the Linux price for an own licence",
    topic="EC2's API",
    source="aws-sdk-js#1819",
)
@pytest.mark.parametrize(
    ("name", "os", "tenancy", "family"),
    [
        ("g5.xlarge", "linux", "Shared", "Compute Instance"),
        ("g4dn.xlarge", "windows", "Shared", "Compute Instance"),
        ("g4dn.metal", "linux", "Dedicated", "Compute Instance (bare metal)"),
        ("c7i.metal-24xl", "linux", "Dedicated", "Compute Instance (bare metal)"),
    ],
)
def test_the_filters_leave_one_product(name: str, os: str, tenancy: str, family: str) -> None:
    """Not with SQL Server, not reserved, and for Windows not with the customer's licence."""
    aws = Aws(PriceList=[], NextToken=None)
    Clients(lambda _: aws).call("GetProducts", ask(name, os))
    filters = {one["Field"]: one["Value"] for one in aws.asked["Filters"]}
    assert filters == {
        "instanceType": name,
        "regionCode": "eu-west-1",
        "operatingSystem": os.capitalize(),
        "licenseModel": "No License required",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": tenancy,
        "productFamily": family,
    }
    assert {one["Type"] for one in aws.asked["Filters"]} == {"TERM_MATCH"}
    assert "NextToken" not in aws.asked


def test_malformed_items_of_the_price_list_are_skipped() -> None:
    items = [
        product("1.1230000000"),
        product("0.0000000000"),
        product("free"),
        "{",
        "[]",
        "{}",
        json.dumps({"product": {"attributes": {}}, "terms": {"OnDemand": 3}}),
        product("2.5", operatingSystem="Windows"),
    ]
    aws = Aws(PriceList=items, NextToken="more")
    found = Clients(lambda _: aws).call("GetProducts", ask("g5.xlarge", "linux", "before"))
    assert found == ([("g5.xlarge", "linux", 1.123), ("g5.xlarge", "windows", 2.5)], "more")


def test_the_current_spot_prices_are_requested() -> None:
    moment = datetime(2026, 11, 22, 4, tzinfo=UTC)
    shown = {
        "InstanceType": "g5.xlarge",
        "AvailabilityZone": "us-east-1a",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.412300",
        "Timestamp": moment,
    }
    aws = Aws(SpotPriceHistory=[shown], NextToken="")
    arguments = {
        "instance_types": ["g5.xlarge"],
        "products": ["Linux/UNIX"],
        "at": moment.timestamp(),
        "page": None,
    }
    found = Clients(lambda _: aws).call("DescribeSpotPriceHistory", arguments)
    row = ("g5.xlarge", "us-east-1a", "Linux/UNIX", "0.412300", moment.timestamp())
    assert found == ([row], "")
    assert aws.asked["StartTime"] == moment
    assert "EndTime" not in aws.asked
