"""The keys of a provider in memory, and what creates it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import Field

from autoscaler.config.configuration import Configuration
from autoscaler.config.problems import Problem
from autoscaler.config.provider_kind import ProviderKind, options_of
from autoscaler.config.settings.fleet import ProviderSection, Settings
from autoscaler.config.settings.shapes import Count, Dollars, Name, Positive
from autoscaler.config.settings.sku import LaunchOptionSettings
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.model.catalogue import CapacityType, Offering, OperatingSystem
from autoscaler.model.identifiers import ProviderName, SkuName
from tests.providers.memory.provider import MemoryProvider


class MemoryOptionKeys(LaunchOptionSettings):
    """The keys of a launch option in memory."""

    size: Name | None = None
    """The name of a size of machines."""
    dollars: Dollars = 1.0
    """The price in zone a in dollars an hour. Zone b costs 1.5 times as much."""
    family: Name = "G"
    """The quota that a machine counts against."""
    units: Positive = 4
    """How much of the quota a machine uses."""


class MemorySection(ProviderSection):
    """Machines of a cloud in memory."""

    title = "Memory"
    place = frozenset({"cloud"})

    cloud: Name
    """Which cloud: a key of `CLOUDS`."""
    room: Mapping[Name, Count] = Field(default_factory=dict)
    """The quotas in units by family."""

    def describe(self, option: LaunchOptionSettings) -> str:
        """Return the size."""
        assert isinstance(option, MemoryOptionKeys)
        return str(option.size)

    def quota_limits(self) -> Mapping[str, int]:
        """Return the quotas."""
        return self.room


class MemoryKind(ProviderKind):
    """Machines in memory."""

    key = "memory"
    about = "Machines in memory."
    section = MemorySection
    option = MemoryOptionKeys
    needs = "size"

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> "MemoryFactory":
        """Return what creates the provider."""
        del folder
        return MemoryFactory(name, settings)

    def check(self, configuration: Configuration) -> Iterator[Problem]:
        """Refuse Windows, for which there is no machine in memory."""
        for one in options_of(configuration, MemorySection, MemoryOptionKeys):
            if one.sku.os is OperatingSystem.WINDOWS:
                what = "there is no Windows in memory"
                yield configuration.error(("skus", one.name, "os"), what, "write linux")


class MemoryFactory:
    """Implements `ProviderFactory`."""

    def __init__(self, name: ProviderName, settings: Settings) -> None:
        self._name, self._settings = name, settings

    async def start(self) -> None:
        """Do nothing: there is nothing to start."""

    def make(self, context: ProviderContext) -> MemoryProvider:
        """Return the provider, with the offerings of its launch options."""
        section = self._settings.providers[self._name].section
        assert isinstance(section, MemorySection)
        offerings = {
            (SkuName(sku), index): tuple(self._offerings(option))
            for sku, found in self._settings.skus.items()
            for index, option in enumerate(found.launch_options)
            if option.provider == self._name and isinstance(option, MemoryOptionKeys)
        }
        return MemoryProvider(self._name, section.cloud, offerings, context.installations)

    def remake(self, context: ProviderContext) -> Callable[[Provider], Provider]:
        """Return what makes a provider with other SKUs (see `ProviderFactory`)."""
        changed = self.make(context)

        def remade(provider: Provider) -> Provider:
            assert isinstance(provider, MemoryProvider)
            return provider.with_offerings_of(changed)

        return remade

    def _offerings(self, option: MemoryOptionKeys) -> Iterator[Offering]:
        for zone, dear in (("a", 1.0), ("b", 1.5)):
            yield Offering(
                self._name,
                str(option.size),
                zone,
                CapacityType.ON_DEMAND,
                option.dollars * dear,
                option.family,
                option.units,
            )

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
