"""The largest fleet.yaml that may be sent to plan with: as many SKUs and offerings as are allowed.

It is as small as YAML's aliases make it. Every SKU keeps machines ready, because that costs the planner most.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from autoscaler.app.planned_file import MAX_OFFERINGS, MAX_PLANNED_SKUS
from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import catalogue, provider_factories
from autoscaler.config import Configuration
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.model.catalogue import Catalogue, Offering
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.providers.ec2.launching.offerings import price_offerings
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.registry import provider_kinds
from tests.providers.doubles import ManualClock, RememberingTelemetry

EAST = ProviderName("us-east-1")
ZONES = ("us-east-1a", "us-east-1b")
READY = 100
HEAD = """\
fleet: ci
github:
  apps: [{id: 1, private_key_file: app.pem}]
  webhook_secret_file: secret
  scopes: [{org: acme}]
server: {listen: "127.0.0.1:0", public_url: "http://127.0.0.1:8443"}
store: sqlite:///state.db
providers:
  us-east-1: {ec2: {region: us-east-1, subnets: [subnet-0a], security_groups: [sg-0a]}}
skus:
"""


class _Opened(Ec2Provider):
    """A provider that knows its zones without asking AWS."""

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return the offerings in all zones, at the table's prices."""
        known = self._settings.skus[sku]
        wanted, os = known.options[option], known.keys.os
        return price_offerings(self.name, ZONES, {}, wanted, os, self.prices.listed())


def text() -> str:
    """Return the file."""
    options = MAX_OFFERINGS // MAX_PLANNED_SKUS // len(ZONES)
    skus = []
    for number in range(MAX_PLANNED_SKUS):
        first = "*types" if number else "&types [g5.xlarge]"
        kinds = [first, *["*types"] * (options - 1)]
        on = ", ".join(f"{{provider: {EAST}, instance_types: {kind}}}" for kind in kinds)
        labels = ", ".join(f"label-{(number + n) % 20:02}" for n in range(2))
        skus.append(
            f"  sku-{number:03}: {{on: [{on}], labels: [{labels}], "
            f"image: {{name: i}}, access: {{forks: true}}, idle: {{min: {READY}}}}}\n"
        )
    return HEAD + "".join(skus)


def steps() -> dict[str, Callable[[], object]]:
    """Return what a thread does with the file, by name. The last one returns the catalogue."""
    with tempfile.TemporaryDirectory() as folder:
        configuration = loaded(Path(folder))
    opened = {EAST: _provider(configuration)}
    return {
        "read the file": lambda: loaded(configuration.path.parent),
        "its catalogue": lambda: of(configuration, opened),
    }


def largest() -> Catalogue:
    """Return the file's catalogue."""
    found = steps()["its catalogue"]()
    assert isinstance(found, Catalogue)
    return found


def loaded(folder: Path) -> Configuration:
    """Check the file, as the controller does with one that was sent."""
    path = folder / "fleet.yaml"
    return load_for_service(path, files=False, try_store=False, content=text().encode())


def of(configuration: Configuration, opened: dict[ProviderName, Provider]) -> Catalogue:
    """Return the catalogue of open providers."""
    return catalogue(configuration, Installations(InstallationId("0badcafe")), opened, opened)


def _provider(configuration: Configuration) -> Provider:
    context = ProviderContext(
        Installations(InstallationId("0badcafe")), "0" * 64, RememberingTelemetry(), ManualClock()
    )
    made = provider_factories(configuration, provider_kinds())[EAST].make(context)
    assert isinstance(made, Ec2Provider)
    made.__class__ = _Opened
    return made
