"""The settings that each part gets from fleet.yaml, also for providers that are not open yet."""

from pathlib import Path
from typing import Any

import pytest

from autoscaler.app.translation import catalogue, health_check_parameters, provider_factories
from autoscaler.config import Configuration
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.controller.system import SystemClock
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import Rate
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    MachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.machine import Machine, MachineState, Placement
from autoscaler.providers.ec2.settings import ec2_settings
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import MINIMAL, Folder
from tests.controller.fakes import RecordingTelemetry

OURS = InstallationId("0badcafe")


def checks_of(configuration: Configuration) -> dict[str, Any]:
    """Return the parameters that machines of the only SKU get, without defaults of their instance type."""
    [checks] = health_check_parameters(configuration, provider_kinds()).values()
    return checks.parameters


def machine_of(instance_type: str, provider: str = "east") -> Machine:
    placement = Placement(1.0, (), instance_type=instance_type)
    launch = (ProviderName(provider), LaunchRequestId("l-1"), 0, 0.0)
    return Machine(MachineId("m-1"), SkuName("gpu"), *launch, MachineState.LAUNCHED, 0.0, placement)


def test_a_providers_launch_rate_is_known_before_it_is_opened(tmp_path: Path) -> None:
    """After a restart the launch rate has only what the downtime refilled, even before the provider is open."""
    configuration = Folder(tmp_path).load(MINIMAL)
    context = ProviderContext(Installations(OURS), "0" * 64, RecordingTelemetry(), SystemClock())
    factories = provider_factories(configuration, provider_kinds())
    configured = {name: factory.make(context) for name, factory in factories.items()}
    known = catalogue(configuration, Installations(OURS), (), configured)
    (name,) = configured
    assert known.launch_rates[name].calls == Rate(50, 5.0)
    assert Ledger(known).fleet(0.0).launch_tokens[name].calls == 50.0


def test_former_ids_reach_the_ledger_and_every_provider(tmp_path: Path) -> None:
    configuration = Folder(tmp_path).load(MINIMAL)
    ids = Installations(OURS, (InstallationId("01d01d01"),))
    assert catalogue(configuration, ids, (), {}).installations == ids
    east = ProviderName("east")
    settings = ec2_settings(east, configuration.settings, tmp_path, ids, "0" * 64)
    assert settings.installations == ids


@pytest.mark.case(
    "many machines behind one address check GitHub: they call only endpoints that cost nothing",
    topic="Runner and listener",
    source="GitHub: rate limit without authentication",
)
def test_the_github_check_of_machines_uses_no_rate_limit(tmp_path: Path) -> None:
    """GitHub allows 60 calls an hour without a token for each address. This call does not count."""
    checks = checks_of(Folder(tmp_path).load(MINIMAL))
    assert checks["github"] == "https://api.github.com/rate_limit"
    assert checks["broker"] == "https://broker.actions.githubusercontent.com/health"
    assert "accelerator" not in checks


def test_only_machines_of_github_com_check_its_broker(tmp_path: Path) -> None:
    text = MINIMAL.replace("github:\n", "github:\n  api_url: https://ghe.example.com/api/v3\n", 1)
    checks = checks_of(Folder(tmp_path).load(text))
    assert checks["github"] == "https://ghe.example.com/api/v3/rate_limit"
    assert "broker" not in checks


def test_the_accelerators_of_a_sku_are_parameters_of_its_health_checks(tmp_path: Path) -> None:
    wanted = 'vendor: amd, count: 2, models: [gfx942], memory_gb: 190, driver_version: "6.12"'
    text = f"{MINIMAL}    accelerator: {{{wanted}}}\n"
    checks = checks_of(Folder(tmp_path).load(text))
    assert checks["accelerator"] == {
        "vendor": "amd",
        "count": 2,
        "models": ["gfx942"],
        "memory_gb": 190,
        "driver_version": "6.12",
    }


@pytest.mark.case(
    "a machine lacks a GPU, and its SKU names none: it must have those of its instance type",
    topic="Accelerators",
    source="EC2: DescribeInstanceTypes",
)
@pytest.mark.parametrize(
    ("instance_type", "keys", "wanted"),
    [
        ("g5.xlarge", "", ("nvidia", 1)),
        ("g4dn.12xlarge", "", ("nvidia", 4)),
        ("p4d.24xlarge", "", ("nvidia", 8)),
        ("p5.4xlarge", "", ("nvidia", 1)),
        ("p2.16xlarge", "", ("nvidia", 16)),
        ("g5g.16xlarge", "arch: arm64", ("nvidia", 2)),
        ("g4ad.16xlarge", "", ("amd", 4)),
        ("g5.12xlarge", "os: windows", ("nvidia", 4)),
        ("g4ad.16xlarge", "os: windows", None),
        ("g5.xlarge", "driver: preinstalled", ("nvidia", 1)),
        ("g5.xlarge", "driver: none", None),
        ("m7i.large", "", None),
        ("g6f.xlarge", "", None),
        ("gr6f.4xlarge", "", None),
        ("dl1.24xlarge", "", None),
        ("inf2.xlarge", "", None),
        ("trn1.32xlarge", "", None),
        ("vt1.3xlarge", "", None),
        ("f2.6xlarge", "", None),
    ],
)
def test_machines_on_ec2_must_have_the_gpus_of_their_instance_type(
    tmp_path: Path, instance_type: str, keys: str, wanted: tuple[str, int] | None
) -> None:
    text = MINIMAL.replace("g5.xlarge", instance_type)
    configuration = Folder(tmp_path).load(f"{text}    {keys}\n" if keys else text)
    [checks] = health_check_parameters(configuration, provider_kinds()).values()
    found = checks.of(machine_of(instance_type)).get("accelerator")
    assert found == (
        None if wanted is None else dict(zip(("vendor", "count"), wanted, strict=True))
    )
    assert checks.of(machine_of(instance_type))["disk_gb"] == checks.parameters["disk_gb"]


def test_each_instance_type_of_a_sku_has_its_own_gpus(tmp_path: Path) -> None:
    types = "[g5.xlarge, g5.12xlarge, m7i.large]"
    text = MINIMAL.replace("[g5.xlarge]", types)
    [checks] = health_check_parameters(Folder(tmp_path).load(text), provider_kinds()).values()
    counts = {
        name: checks.of(machine_of(name)).get("accelerator", {}).get("count")
        for name in ("g5.xlarge", "g5.12xlarge", "m7i.large", "g6.xlarge", "mac2.metal", "")
    }
    assert counts == {
        "g5.xlarge": 1,
        "g5.12xlarge": 4,
        "m7i.large": None,
        # Those are not of this SKU. A machine is of another type if the type was removed meanwhile.
        "g6.xlarge": None,
        "mac2.metal": None,
        "": None,
    }
    assert "accelerator" not in checks.of(machine_of("g5.xlarge", "elsewhere"))


def test_an_accelerator_of_the_sku_holds_for_all_its_machines(tmp_path: Path) -> None:
    text = f'{MINIMAL}    accelerator: {{vendor: nvidia, count: 1, driver_version: "580"}}\n'
    [checks] = health_check_parameters(Folder(tmp_path).load(text), provider_kinds()).values()
    wanted = {"vendor": "nvidia", "count": 1, "driver_version": "580"}
    assert checks.of(machine_of("g5.xlarge"))["accelerator"] == wanted


def test_pods_of_a_sku_do_not_need_the_gpus_of_its_instance_types(tmp_path: Path) -> None:
    text = MINIMAL.replace(
        "skus:\n", "  cluster:\n    kubernetes: {context: c, namespace: runners}\nskus:\n"
    ).replace("[g5.xlarge]}]", "[g5.xlarge]}, {provider: cluster, pod: {image: i}}]")
    [checks] = health_check_parameters(Folder(tmp_path).load(text), provider_kinds()).values()
    assert checks.of(machine_of("g5.xlarge"))["accelerator"] == {"vendor": "nvidia", "count": 1}
    assert "accelerator" not in checks.of(machine_of("pod", "cluster"))
