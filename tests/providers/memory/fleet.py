"""A fleet.yaml with two providers in memory, whose SKUs are like those of the chaos worlds."""

from pathlib import Path

from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import catalogue, provider_factories
from autoscaler.config import Configuration
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.controller.system import SystemClock
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import Installations, ProviderName
from autoscaler.providers.registry import provider_kinds
from autoscaler.simulator.world.controller.store import INSTALLATION
from tests.controller.fakes import RecordingTelemetry
from tests.providers.memory import REGISTERED

TEXT = """\
fleet: ci
github:
  apps: [{id: 1, private_key_file: app.pem}]
  webhook_secret_file: secret
  scopes: [{org: acme}]
server: {listen: "127.0.0.1:0", public_url: "http://127.0.0.1:8443"}
store: sqlite:///state.db
limits: {machines: 20, dollars_per_hour: 16}
providers:
  east: {memory: {cloud: cloud-east, room: {G: 120}}}
  west: {memory: {cloud: cloud-west, room: {G: 192, C: 60}}}
skus:
  gpu:
    on: [{provider: east, size: g-small, dollars: 0.9}]
    max_machines: 12
    fair_share: 0.5
    idle: {schedule: [{cron: "0 8 * * *", for: 90m, min: 1}]}
    access: {forks: true}
    rerun_interrupted: 1
  big:
    on:
      - {provider: east, size: g-big, dollars: 1.9, units: 48}
      - {provider: west, size: g-big, dollars: 4.6, units: 48}
    max_machines: 3
    access: {forks: true}
    rerun_interrupted: 1
  cpu:
    on: [{provider: west, size: c-small, dollars: 0.2, family: C}]
    max_machines: 6
    access: {forks: true}
  armed:
    on: [{provider: west, size: c-arm, dollars: 0.2, family: C}]
    arch: arm64
    access: {forks: true}
    rerun_interrupted: 2
"""


def loaded(folder: Path, text: str = TEXT) -> Configuration:
    """Read it as `autoscaler check` does, but for the files that it names. Raises ConfigurationError."""
    path = folder / "fleet.yaml"
    path.write_text(text)
    return load_for_service(path, files=False, providers=REGISTERED)


def providers(configuration: Configuration) -> dict[ProviderName, Provider]:
    """Create the providers as `autoscaler serve` does."""
    context = ProviderContext(
        Installations(INSTALLATION), "0" * 64, RecordingTelemetry(), SystemClock()
    )
    factories = provider_factories(configuration, provider_kinds(REGISTERED))
    return {name: factory.make(context) for name, factory in factories.items()}


def opened_catalogue(configuration: Configuration) -> Catalogue:
    """Return the catalogue once all providers are open."""
    made = providers(configuration)
    return catalogue(configuration, Installations(INSTALLATION), made, made)
