"""Factories make a provider with other SKUs from one that runs, and refuse one of another kind."""

from pathlib import Path

import pytest

from autoscaler.app.translation import provider_factories
from autoscaler.config import Configuration, load
from autoscaler.controller.ports.provider import Provider, ProviderContext, ProviderError
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.providers.registry import provider_kinds
from tests.providers.doubles import ManualClock, RememberingTelemetry

RENAMED = SkuName("renamed")
EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes.yaml"
CONTEXT = ProviderContext(
    Installations(InstallationId("0badcafe")), "0" * 64, RememberingTelemetry(), ManualClock()
)


def example(folder: Path, *changes: tuple[str, str]) -> Configuration:
    text = EXAMPLE.read_text().replace(", ca_file: ca.pem", "")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file = folder / "fleet.yaml"
    file.write_text(text)
    return load(file, provider_kinds(), files=False)


def remade(folder: Path, name: str) -> tuple[Provider, Provider]:
    """Return a provider, and the one that is made from it with a renamed SKU."""
    kinds, provider = provider_kinds(), ProviderName(name)
    first = provider_factories(example(folder), kinds)[provider].make(CONTEXT)
    renamed = example(folder, ("  linux.arm64.m7g.4xlarge:", "  renamed:"))
    return first, provider_factories(renamed, kinds)[provider].remake(CONTEXT)(first)


async def test_pods_of_a_new_sku_are_known_to_the_remade_provider_alone(tmp_path: Path) -> None:
    first, other = remade(tmp_path, "cloud")
    assert await other.image(RENAMED) == "ghcr.io/actions/actions-runner:latest"
    with pytest.raises(ProviderError, match="renamed is not a SKU on cloud"):
        await first.image(RENAMED)
    await first.close()


async def test_instances_of_a_new_sku_are_known_to_the_remade_provider_alone(
    tmp_path: Path,
) -> None:
    first, other = remade(tmp_path, "us-east-1")
    assert other.offerings(RENAMED, 1) == ()  # no zone is known before `open`
    with pytest.raises(KeyError):
        first.offerings(RENAMED, 1)
    await first.close()


@pytest.mark.parametrize("name", ["cloud", "us-east-1"])
async def test_a_provider_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    factories = provider_factories(example(tmp_path), provider_kinds())
    other = factories[ProviderName("us-east-1" if name == "cloud" else "cloud")].make(CONTEXT)
    with pytest.raises(ValueError, match=f"provider {name} is not on"):
        factories[ProviderName(name)].remake(CONTEXT)(other)
    await other.close()


@pytest.mark.parametrize("name", ["cloud", "us-east-1"])
async def test_a_remade_provider_has_what_the_first_adopted_meanwhile(
    tmp_path: Path, name: str
) -> None:
    factory = provider_factories(example(tmp_path), provider_kinds())[ProviderName(name)]
    first = factory.make(CONTEXT)
    make = factory.remake(CONTEXT)
    first.adopt(InstallationId("feedbeef"))
    settings = vars(make(first))["_settings"]
    assert settings.installations.own == "feedbeef"
    await first.close()
