"""The settings that each part gets from fleet.yaml, also for providers that are not open yet."""

from pathlib import Path

import pytest

from autoscaler.app.translation import catalogue, health_check_parameters, provider_factories
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.controller.system import SystemClock
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import Rate
from autoscaler.model.identifiers import InstallationId, ProviderName
from autoscaler.model.installations import Installations
from autoscaler.providers.ec2.translation import ec2_settings
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import MINIMAL, Folder
from tests.controller.fakes import RecordingTelemetry

OURS = InstallationId("0badcafe")


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
    found = health_check_parameters(Folder(tmp_path).load(MINIMAL))
    assert {checks["github"] for checks in found.values()} == {"https://api.github.com/rate_limit"}
    broker = "https://broker.actions.githubusercontent.com/health"
    assert {checks["broker"] for checks in found.values()} == {broker}
    assert not [checks for checks in found.values() if "accelerator" in checks]


def test_only_machines_of_github_com_check_its_broker(tmp_path: Path) -> None:
    text = MINIMAL.replace("github:\n", "github:\n  api_url: https://ghe.example.com/api/v3\n", 1)
    [checks] = health_check_parameters(Folder(tmp_path).load(text)).values()
    assert checks["github"] == "https://ghe.example.com/api/v3/rate_limit"
    assert "broker" not in checks


def test_the_accelerators_of_a_sku_are_parameters_of_its_health_checks(tmp_path: Path) -> None:
    wanted = 'vendor: amd, count: 2, models: [gfx942], memory_gb: 190, driver_version: "6.12"'
    text = f"{MINIMAL}    accelerator: {{{wanted}}}\n"
    [checks] = health_check_parameters(Folder(tmp_path).load(text)).values()
    assert checks["accelerator"] == {
        "vendor": "amd",
        "count": 2,
        "models": ["gfx942"],
        "memory_gb": 190,
        "driver_version": "6.12",
    }
