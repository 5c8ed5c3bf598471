"""fleet.yaml in the words of each part: what holds for providers that could not be opened yet."""

from pathlib import Path

from autoscaler.app.translation import catalogue, ec2_settings, health_check_parameters
from autoscaler.controller.system import SystemClock
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import Rate
from autoscaler.model.identifiers import InstallationId
from autoscaler.model.installations import Installations
from autoscaler.providers.ec2.provider import Ec2Provider
from tests.config.fleet_file import MINIMAL, Folder
from tests.controller.fakes import RecordingTelemetry

OURS = InstallationId("0badcafe")


def test_how_fast_a_provider_launches_is_known_before_it_is_opened(tmp_path: Path) -> None:
    """A restart counts on no more calls than its absence gave, opened or not."""
    configuration = Folder(tmp_path).load(MINIMAL)
    settings = ec2_settings(configuration, Installations(OURS), "0" * 64)
    configured = {
        name: Ec2Provider(one, RecordingTelemetry(), SystemClock())
        for name, one in settings.items()
    }
    known = catalogue(configuration, Installations(OURS), {}, configured)
    (name,) = configured
    assert known.launch_rates[name].calls == Rate(50, 5.0)
    assert Ledger(known).fleet(0.0).launch_tokens[name].calls == 50.0


def test_former_ids_reach_the_ledger_and_every_provider(tmp_path: Path) -> None:
    configuration = Folder(tmp_path).load(MINIMAL)
    ids = Installations(OURS, (InstallationId("01d01d01"),))
    assert catalogue(configuration, ids, {}, {}).installations == ids
    (settings,) = ec2_settings(configuration, ids, "0" * 64).values()
    assert settings.installations == ids


def test_machines_ask_github_what_costs_nothing(tmp_path: Path) -> None:
    """Calls without a token have 60 an hour for everything behind one address; this one is free."""
    found = health_check_parameters(Folder(tmp_path).load(MINIMAL))
    assert {gate["github"] for gate in found.values()} == {"https://api.github.com/rate_limit"}
