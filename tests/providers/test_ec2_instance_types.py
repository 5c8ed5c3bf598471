"""Prices, sizes and quotas of instance types."""

import csv
import gzip
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.ec2 import instance_types as instance_types_module
from autoscaler.providers.ec2.instance_types import (
    ORDINARY_FIRST_CARD,
    PRICES_DATED,
    InstanceTypeError,
    Prices,
    efa_interfaces,
    instance_type,
    instance_types,
    quota,
    quota_family,
    quota_names,
)
from autoscaler.providers.ec2.launching.offerings import (
    price_offerings,
    quota_usage_of,
    running_cost,
    subnets_with_most_addresses,
)
from autoscaler.providers.ec2.worker.rows import SubnetRow
from tests.providers.ec2_keys import option_of

LINUX, WINDOWS = OperatingSystem.LINUX, OperatingSystem.WINDOWS

EAST = ProviderName("east")


def test_the_table_has_the_usual_gpu_instance_types() -> None:
    one = instance_type("g5.4xlarge")
    assert (one.vcpus, one.memory_mib, one.arch) == (16, 65536, Architecture.X64)
    assert (one.gpu_count, one.gpu_maker, one.gpu_name) == (1, "nvidia", "a10g")
    assert instance_type("m7g.4xlarge").arch is Architecture.ARM64
    assert len(instance_types()) > 1300
    assert PRICES_DATED == "2026-07-20"


@pytest.mark.case(
    "Windows costs more for each vCPU",
    topic="EC2's API",
    source="EC2: on-demand prices",
)
@pytest.mark.parametrize(
    ("name", "os", "dollars"),
    [
        ("g5.xlarge", LINUX, 1.006),
        ("g4dn.xlarge", LINUX, 0.526),
        ("g4dn.xlarge", WINDOWS, 0.526 + 4 * 0.046),
        ("p3.2xlarge", WINDOWS, 3.06 + 8 * 0.046),
        ("p5.48xlarge", LINUX, 55.04),
    ],
)
def test_windows_costs_more_per_vcpu(name: str, os: OperatingSystem, dollars: float) -> None:
    assert instance_type(name).dollars_per_hour(os) == pytest.approx(dollars)


@pytest.mark.case(
    "a type without a price, or a region without prices in dollars, is an error with a fix",
    topic="EC2's API",
    source="Karpenter's prices by region",
)
def test_a_type_without_a_price_or_unknown_is_an_error_that_names_it() -> None:
    unpriced = next(one for one in instance_types().values() if one.linux_dollars_per_hour is None)
    with pytest.raises(InstanceTypeError, match=unpriced.name):
        unpriced.dollars_per_hour(LINUX)
    with pytest.raises(InstanceTypeError, match=r"z99\.huge"):
        instance_type("z99.huge")


def test_a_configured_price_is_the_linux_price() -> None:
    prices = Prices(overrides={"g5.xlarge": 2.0})
    assert instance_type("g5.xlarge").dollars_per_hour(LINUX, prices) == 2.0
    assert instance_type("g5.xlarge").dollars_per_hour(WINDOWS, prices) == pytest.approx(2.184)


def test_in_regions_without_dollar_prices_only_the_operators_prices_apply() -> None:
    west = Prices("cn-north-1", {"g5.xlarge": 1.123})
    assert instance_type("g5.xlarge").dollars_per_hour(LINUX, west) == 1.123
    with pytest.raises(InstanceTypeError) as refusal:
        instance_type("g6.xlarge").dollars_per_hour(LINUX, west)
    assert refusal.value.what == (
        "no price is known for instance type g6.xlarge in cn-north-1 (in us-east-1 it is 0.8048)"
    )
    assert "prices: {g6.xlarge: " in refusal.value.fix


@pytest.mark.case(
    "spot counts at the on-demand price by default",
    topic="EC2's API",
    source="EC2: spot instances",
)
@pytest.mark.parametrize(
    ("os", "factor", "dollars"),
    [
        (LINUX, 1.0, 0.526),
        (LINUX, 0.5, 0.263),
        (WINDOWS, 1.0, 0.526 + 4 * 0.046),
        (WINDOWS, 0.5, 0.263 + 4 * 0.046),
    ],
)
def test_spot_counts_at_the_on_demand_price_unless_configured_otherwise(
    os: OperatingSystem, factor: float, dollars: float
) -> None:
    prices = Prices(spot_factor=factor)
    found = instance_type("g4dn.xlarge")
    assert found.dollars_per_hour(os, prices, CapacityType.SPOT) == pytest.approx(dollars)
    assert found.dollars_per_hour(os, prices) == found.dollars_per_hour(os)
    wanted = option_of("g4dn.xlarge", capacity=(CapacityType.SPOT,))
    (offering,) = price_offerings(EAST, ["a"], {}, wanted, os, prices)
    assert offering.dollars_per_hour == pytest.approx(dollars)
    assert running_cost("g4dn.xlarge", os, prices, CapacityType.SPOT) == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("m7i.xlarge", "Standard"),
        ("im4gn.large", "Standard"),
        ("t3.large", "Standard"),
        ("h1.2xlarge", "Standard"),
        ("d3.xlarge", "Standard"),
        ("g5.xlarge", "G and VT"),
        ("gr6.4xlarge", "G and VT"),
        ("vt1.3xlarge", "G and VT"),
        ("p5.48xlarge", "P"),
        ("f2.6xlarge", "F"),
        ("inf2.xlarge", "Inf"),
        ("trn1.2xlarge", "Trn"),
        ("x2gd.medium", "X"),
        ("dl1.24xlarge", "DL"),
        ("hpc7a.96xlarge", "HPC"),
        ("u-6tb1.metal", "High memory"),
        ("u7i-12tb.224xlarge", "High memory"),
    ],
)
def test_instance_types_count_in_the_quota_of_their_family(name: str, family: str) -> None:
    assert quota_family(name) == family


def test_every_type_of_the_table_has_a_family() -> None:
    assert all(quota_family(name) for name in instance_types())


@pytest.mark.case(
    "spot has quotas and an error of its own",
    topic="EC2's API",
    source="EC2: spot quotas",
)
def test_spot_and_on_demand_are_separate_quotas() -> None:
    assert quota("g5.xlarge", CapacityType.SPOT) == "spot/G and VT"
    assert quota("g5.xlarge", CapacityType.ON_DEMAND) == "on-demand/G and VT"


@pytest.mark.case(
    "P5 on spot has a quota of its own; AWS names none for P6",
    topic="EC2's API",
    source="EC2: instance quotas",
)
@pytest.mark.parametrize(
    ("name", "spot"),
    [
        ("p2.xlarge", "P"),
        ("p3dn.24xlarge", "P"),
        ("p4de.24xlarge", "P"),
        ("p5.48xlarge", "P5"),
        ("p5en.48xlarge", "P5"),
        ("p6-b200.48xlarge", "P6"),
    ],
)
def test_spot_counts_late_p_types_apart_and_on_demand_does_not(name: str, spot: str) -> None:
    assert quota(name, CapacityType.SPOT) == f"spot/{spot}"
    assert quota(name, CapacityType.ON_DEMAND) == "on-demand/P"


def test_quotas_are_named_by_family_or_by_their_own_name() -> None:
    names = quota_names()
    assert {"Standard", "P", "spot/P5", "spot/P6"} <= names
    assert not {"P5", "on-demand/P5", "spot/P"} & names


def test_offerings_keep_the_order_of_capacity_types_then_types() -> None:
    kinds = (CapacityType.SPOT, CapacityType.ON_DEMAND)
    wanted = option_of("g6.4xlarge", "g5.4xlarge", capacity=kinds)
    found = price_offerings(EAST, ["a", "b"], {}, wanted, LINUX, Prices())
    assert [one.key for one in found] == [
        "east/g6.4xlarge/a/spot",
        "east/g6.4xlarge/b/spot",
        "east/g5.4xlarge/a/spot",
        "east/g5.4xlarge/b/spot",
        "east/g6.4xlarge/a/on-demand",
        "east/g6.4xlarge/b/on-demand",
        "east/g5.4xlarge/a/on-demand",
        "east/g5.4xlarge/b/on-demand",
    ]
    assert {one.quota_units for one in found} == {16}


def test_each_zone_uses_its_subnet_with_most_free_addresses() -> None:
    rows = [SubnetRow("s-2", "b", 9), SubnetRow("s-1", "a", 5), SubnetRow("s-3", "a", 50)]
    assert subnets_with_most_addresses(rows) == {"a": "s-3", "b": "s-2"}
    assert list(subnets_with_most_addresses(rows)) == ["a", "b"]


def test_of_two_equal_subnets_the_same_one_is_always_used() -> None:
    """The same order gives the same bytes, whatever order AWS lists the subnets in."""
    rows = [SubnetRow("s-1", "a", 5), SubnetRow("s-2", "a", 5)]
    assert subnets_with_most_addresses(rows) == {"a": "s-1"}
    assert subnets_with_most_addresses(rows[::-1]) == {"a": "s-1"}


def test_a_subnet_that_was_full_is_used_only_if_its_zone_has_no_other() -> None:
    rows = [SubnetRow("s-2", "b", 9), SubnetRow("s-1", "a", 5), SubnetRow("s-3", "a", 50)]
    assert subnets_with_most_addresses(rows, {"s-2", "s-3"}) == {"a": "s-1", "b": "s-2"}


def test_a_machine_of_an_unknown_type_neither_stops_the_list_nor_counts() -> None:
    assert running_cost("z99.huge", LINUX, Prices(), CapacityType.SPOT) == 0.0
    assert quota_usage_of(EAST, "z99.huge", CapacityType.SPOT) == ()
    assert quota_usage_of(EAST, "g5.xlarge", CapacityType.SPOT) == (("east/spot/G and VT", 4),)


def test_the_table_of_adapters_agrees_with_ec2s_own_list() -> None:
    """moto brings an answer of DescribeInstanceTypes; the table is from Karpenter's documentation."""
    (root,) = find_spec("moto").submodule_search_locations  # type: ignore[union-attr,misc]
    packed = Path(root, "ec2/resources/instance_types.json.gz").read_bytes()
    for name, described in json.loads(gzip.decompress(packed)).items():
        network = described["NetworkInfo"]
        most = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        if name in instance_types():
            assert efa_interfaces().get(name, 0) == most, name
            assert most <= network.get("MaximumNetworkCards", 1), name
    assert efa_interfaces().keys() <= instance_types().keys()


def test_the_gpus_of_the_table_are_those_that_ec2_describes() -> None:
    """moto brings an answer of DescribeInstanceTypes."""
    (root,) = find_spec("moto").submodule_search_locations  # type: ignore[union-attr,misc]
    packed = Path(root, "ec2/resources/instance_types.json.gz").read_bytes()
    compared = 0
    for name, described in json.loads(gzip.decompress(packed)).items():
        known = instance_types().get(name)
        if known is None:
            continue
        gpus = described.get("GpuInfo", {}).get("Gpus", [])
        found = {(one["Manufacturer"].lower(), one["Count"]) for one in gpus} or {("", 0)}
        assert {(known.gpu_maker, known.gpu_count)} == found, name
        compared += bool(gpus)
    assert compared > 50


def test_the_script_writes_the_table_in_its_own_format(tmp_path: Path) -> None:
    source = tmp_path / "source.csv"
    source.write_text(
        "instance_type,vcpu,memory_mib,arch,gpu_count,gpu_maker,gpu_name,"
        "linux_on_demand_usd_per_hour_us_east_1\n"
        "z9.large,2,4096,arm64,,,,0.5\n"
        "g5.xlarge,4,16384,amd64,1,nvidia,a10g,1.006\n"
        "g2.2xlarge,,,,,,,0.65\n"
    )
    script = Path(__file__).parents[2] / "scripts" / "instance_types.py"
    command = [sys.executable, str(script), str(source)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = list(csv.reader(printed.splitlines()))
    table = Path(instance_types_module.__file__).parent / "data" / "instance_types.csv"
    header = table.read_text(encoding="utf-8").splitlines()[0].split(",")
    assert rows == [
        header,
        ["g5.xlarge", "4", "16384", "x64", "1", "nvidia", "a10g", "1.006"],
        ["z9.large", "2", "4096", "arm64", "0", "", "", "0.5"],
    ]


def test_the_types_whose_network_card_0_has_no_efa_are_those_that_ec2_describes() -> None:
    (root,) = find_spec("moto").submodule_search_locations  # type: ignore[union-attr,misc]
    packed = Path(root, "ec2/resources/instance_types.json.gz").read_bytes()
    found = set()
    for name, described in json.loads(gzip.decompress(packed)).items():
        cards = described["NetworkInfo"].get("NetworkCards", [])
        with_efa = [n for n, card in enumerate(cards) if "efa" in card["InterfaceTypes"]]
        most = efa_interfaces().get(name, 0)
        if with_efa[:1] == [1]:
            assert with_efa[:most] == list(range(1, most + 1)), name
            found.add(name)
        elif name in efa_interfaces():
            assert with_efa[:most] == list(range(most)), name
    assert found == ORDINARY_FIRST_CARD
