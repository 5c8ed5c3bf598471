"""What fleet.yaml says of EC2 reaches the provider."""

import re
from pathlib import Path

import pytest

from autoscaler import config
from autoscaler.model.catalogue import CapacityType, LaunchRate, OperatingSystem, Rate
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName
from autoscaler.providers.ec2.checks.offerings import offering_problems
from autoscaler.providers.ec2.configuration import Ec2OptionKeys
from autoscaler.providers.ec2.instance_types import Prices
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, ec2_settings
from autoscaler.providers.registry import provider_kinds
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi

THERE = ProviderName("there")
QUEUE = "https://sqs.us-east-1.amazonaws.com/1/ci"

TEXT = """
fleet: ci
github:
  apps: [{id: 1, private_key_file: app.pem}]
  webhook_secret_file: secret
  scopes: [{org: acme}]
server: {listen: "127.0.0.1:8443", public_url: "http://127.0.0.1:8443"}
store: sqlite:///state.db
providers:
  there:
    ec2: {region: REGION, subnets: [subnet-0a], security_groups: [sg-0a], MORE}
skus:
  gpu:
    on: [{provider: there, instance_types: [g5.xlarge]}]
    image: {name: "gpu-*"}
"""


def loaded(tmp_path: Path, region: str, more: str) -> config.Configuration:
    path = tmp_path / "fleet.yaml"
    path.write_text(TEXT.replace("REGION", region).replace("MORE", more))
    return config.load(path, provider_kinds(), files=False)


def provider_settings(tmp_path: Path, more: str) -> Ec2Settings:
    configuration = loaded(tmp_path, "us-east-1", more)
    ids = Installations(InstallationId("0badcafe"))
    return ec2_settings(THERE, configuration.settings, tmp_path, ids, "0" * 64)


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("public_ip: false", "public_ip", False),
        ("instance_profile: gpu-runner", "instance_profile", "gpu-runner"),
        ("tags: {team: ci}", "tags", {"team": "ci"}),
        ("account: '123456789012'", "account", "123456789012"),
        ("prices: {g5.xlarge: 2}", "prices", {"g5.xlarge": 2.0}),
        ("spot_price_factor: 0.4", "spot_price_factor", 0.4),
        (f"interruption_queue: {QUEUE}", "interruption_queue", QUEUE),
    ],
)
def test_each_key_of_the_provider_is_a_setting(
    tmp_path: Path, written: str, field: str, value: object
) -> None:
    assert getattr(provider_settings(tmp_path, written).section, field) == value


def test_certificates_are_named_from_the_folder_of_fleet_yaml(tmp_path: Path) -> None:
    made = provider_settings(tmp_path, "identity_certificates: [a.pem, /etc/b.pem]")
    missing = re.escape(str(tmp_path / "a.pem"))
    with pytest.raises(ValueError, match=missing):
        Ec2Provider(made, RememberingTelemetry(), ManualClock(), ScriptedApi(lambda *_: None))


def test_each_key_of_a_launch_option_is_a_setting(tmp_path: Path) -> None:
    """Launch options keep their position in `on`, also beside those of other providers."""
    first = "{provider: there, instance_types: [g5.xlarge], capacity: [spot, on-demand]}"
    second = (
        "{provider: there, instance_types: [p5.48xlarge], efa_interfaces: 32, "
        "placement_group: near, capacity_reservation: cr-0123456789abcdef0}"
    )
    text = TEXT.replace("[{provider: there, instance_types: [g5.xlarge]}]", f"[{first}, {second}]")
    path = tmp_path / "fleet.yaml"
    path.write_text(text.replace("REGION", "us-east-1").replace("MORE", "quotas: {}"))
    ids = Installations(InstallationId("0badcafe"))
    settings = config.load(path, provider_kinds(), files=False).settings
    (sku,) = ec2_settings(THERE, settings, tmp_path, ids, "0" * 64).skus.values()
    written = set(Ec2OptionKeys.model_fields)
    first_keys, second_keys = (one.model_dump(include=written) for one in sku.options.values())
    assert list(sku.options) == [0, 1]
    assert first_keys["instance_types"] == ("g5.xlarge",)
    assert first_keys["capacity"] == (CapacityType.SPOT, CapacityType.ON_DEMAND)
    assert second_keys == {
        "provider": THERE,
        "instance_types": ("p5.48xlarge",),
        "capacity": (CapacityType.ON_DEMAND,),
        "efa_interfaces": 32,
        "placement_group": "near",
        "capacity_reservation": "cr-0123456789abcdef0",
    }
    assert [one.target for one in sku.options.values()] == ["", "cr-0123456789abcdef0/near"]


def test_the_disk_of_a_sku_is_read(tmp_path: Path) -> None:
    text = TEXT.replace("REGION", "us-east-1").replace("MORE", "quotas: {}")
    path = tmp_path / "fleet.yaml"
    path.write_text(f"{text}    disk_gb: 150\n")
    settings = config.load(path, provider_kinds(), files=False).settings
    ids = Installations(InstallationId("0badcafe"))
    (sku,) = ec2_settings(THERE, settings, tmp_path, ids, "0" * 64).skus.values()
    assert sku.keys.disk_gb == 150


def test_prices_and_the_spot_factor_are_read(tmp_path: Path) -> None:
    made = provider_settings(tmp_path, "prices: {g5.xlarge: 2}, spot_price_factor: 0.4")
    assert made.price_list == Prices("us-east-1", {"g5.xlarge": 2.0}, 0.4)


def test_quotas_are_read_by_family_and_capacity_type(tmp_path: Path) -> None:
    made = provider_settings(tmp_path, 'quotas: {"G and VT": 64, "spot/G and VT": 8}')
    assert made.section.quota_limits() == {"on-demand/G and VT": 64, "spot/G and VT": 8}


def test_quotas_that_only_spot_has_are_read(tmp_path: Path) -> None:
    configuration = loaded(tmp_path, "us-east-1", "quotas: {P: 96, spot/P5: 192, on-demand/P5: 1}")
    assert [one.what for one in offering_problems(configuration)] == ['"P5" is not a quota family']
    made = provider_settings(tmp_path, "quotas: {P: 96, spot/P5: 192}")
    assert made.section.quota_limits() == {"on-demand/P": 96, "spot/P": 96, "spot/P5": 192}


@pytest.mark.case(
    "an account whose limits were raised, or are lower in practice",
    topic="EC2's API",
    source="GAR rate-limits-and-tuning.md",
)
def test_the_configured_request_limits_are_used(tmp_path: Path) -> None:
    more = (
        "request_buckets: {CreateFleet: {burst: 5, per_second: 2}}, "
        "resource_buckets: {CreateFleet: {burst: 9000, per_second: 10.5}}"
    )
    made = provider_settings(tmp_path, more)
    api = ScriptedApi(lambda *_: None)
    provider = Ec2Provider(made, RememberingTelemetry(), ManualClock(), api)
    assert provider.capabilities.launch_rate == LaunchRate(Rate(5, 2), Rate(9000, 10.5))


def test_a_region_with_listed_prices_needs_no_configured_prices(tmp_path: Path) -> None:
    assert offering_problems(loaded(tmp_path, "eu-west-1", "quotas: {}")) == ()


def test_prices_are_read_for_the_types_of_the_skus(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    launch_options = (
        "[{provider: there, instance_types: [g5.xlarge], capacity: [spot]}, "
        "{provider: there, instance_types: [g4dn.xlarge]}]"
    )
    more = (
        "  win:\n    on: "
        + launch_options.replace("g5", "g6")
        + "\n    os: windows\n    image: {name: w}\n"
    )
    text = TEXT.replace("[{provider: there, instance_types: [g5.xlarge]}]", launch_options) + more
    path.write_text(text.replace("REGION", "eu-west-1").replace("MORE", "quotas: {}"))
    ids = Installations(InstallationId("0badcafe"))
    made = ec2_settings(
        THERE, config.load(path, provider_kinds(), files=False).settings, tmp_path, ids, "0" * 64
    )
    linux, windows = OperatingSystem.LINUX, OperatingSystem.WINDOWS
    assert made.offered == {
        CapacityType.SPOT: {("g5.xlarge", linux), ("g6.xlarge", windows)},
        CapacityType.ON_DEMAND: {
            ("g5.xlarge", linux),
            ("g4dn.xlarge", linux),
            ("g6.xlarge", windows),
            ("g4dn.xlarge", windows),
        },
    }


@pytest.mark.case(
    "a type without a price, or a region without prices in dollars, is an error with a fix",
    topic="EC2's API",
    source="Karpenter's prices by region",
)
def test_a_region_without_prices_in_dollars_is_an_error_that_names_type_region_and_fix(
    tmp_path: Path,
) -> None:
    (problem,) = offering_problems(loaded(tmp_path, "cn-north-1", "quotas: {}"))
    assert problem.key == "skus.gpu.on[0].instance_types[0]"
    assert problem.what.startswith("no price is known for instance type g5.xlarge in cn-north-1")
    assert "prices: {g5.xlarge: DOLLARS_PER_HOUR}" in problem.fix
    assert offering_problems(loaded(tmp_path, "cn-north-1", "prices: {g5.xlarge: 1.1}")) == ()


@pytest.mark.parametrize(
    ("key", "api"), [("request_buckets", "CreateFlet"), ("resource_buckets", "DescribeInstances")]
)
def test_a_request_limit_of_an_unknown_api_is_an_error(tmp_path: Path, key: str, api: str) -> None:
    more = f"{key}: {{{api}: {{burst: 1, per_second: 1}}}}"
    (problem,) = offering_problems(loaded(tmp_path, "us-east-1", more))
    assert problem.key == f"providers.there.ec2.{key}.{api}"
