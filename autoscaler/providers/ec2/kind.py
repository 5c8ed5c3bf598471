"""The kind `ec2` of providers."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.config.configuration import Configuration
from autoscaler.config.examinations import Examination
from autoscaler.config.problems import Problem
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings.fleet import ProviderSection, Settings
from autoscaler.config.settings.sku import Accelerator, LaunchOptionSettings, SkuSettings
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.providers.ec2.checks import contradictions
from autoscaler.providers.ec2.configuration import KEY, Ec2OptionKeys, Ec2Section, Ec2SkuKeys

if TYPE_CHECKING:
    from autoscaler.providers.ec2.factory import Ec2Factory
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.instance_types import (
    InstanceTypeError,
    Prices,
    instance_type,
    instance_types,
)


class Ec2Kind(ProviderKind):
    """Machines on EC2."""

    key = KEY
    about = "Machines on EC2."
    section = Ec2Section
    option = Ec2OptionKeys
    sku = Ec2SkuKeys
    needs = "instance_types"

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> "Ec2Factory":
        """Return the factory of a provider, which also starts its worker process."""
        from autoscaler.providers.ec2.factory import Ec2Factory

        return Ec2Factory(name, settings, folder)

    def check(self, configuration: Configuration) -> Iterator[Problem]:
        """Return contradictions between regions, platforms and images, and warnings about queues."""
        yield from contradictions.check(configuration)

    def preflight(self, configuration: Configuration, *, files: bool) -> Iterator[Problem]:
        """Return unknown types, quotas and regions, and files that cannot be used."""
        from autoscaler.providers.ec2.checks.preflight import preflight

        yield from preflight(configuration, files=files)

    def examinations(self, configuration: Configuration, within: Seconds) -> Iterator[Examination]:
        """Return what the account of each provider is asked: reads and dry runs."""
        from autoscaler.providers.ec2.checks.examinations import examinations

        yield from examinations(configuration, within)

    async def runner_versions(
        self, configuration: Configuration, within: Seconds
    ) -> Mapping[str, str]:
        """Return the versions in the images of the recipes, whose tags say them."""
        from autoscaler.providers.ec2.checks.examinations import runner_versions

        return await runner_versions(configuration, within)

    def least_dollars(
        self, sku: SkuSettings, option: LaunchOptionSettings, section: ProviderSection
    ) -> float | None:
        """Return the price of the cheapest instance type and capacity type, as the built-in table has it.

        Counts other regions at the prices of us-east-1, which are among the lowest.
        """
        assert isinstance(option, Ec2OptionKeys)
        assert isinstance(section, Ec2Section)
        prices = Prices(overrides=section.prices, spot_factor=section.spot_price_factor)
        found: list[float] = []
        for name, capacity in product(option.instance_types or (), option.capacity):
            with suppress(InstanceTypeError):
                found.append(instance_type(name).dollars_per_hour(sku.os, prices, capacity))
        return min(found, default=None)

    def accelerators(
        self, sku: SkuSettings, option: LaunchOptionSettings
    ) -> Mapping[str, Accelerator]:
        """Return NVIDIA's and AMD's GPUs of each instance type."""
        types = option.instance_types if isinstance(option, Ec2OptionKeys) else ()
        found = ((name, gpus_of(name, sku.os)) for name in types or ())
        return {name: gpus for name, gpus in found if gpus is not None}


def gpus_of(name: str, os: OperatingSystem) -> Accelerator | None:
    """Return the vendor and number of an instance type's GPUs, or None if the agent cannot check them.

    It checks NVIDIA's and, on Linux, AMD's: no Gaudi, Inferentia or Trainium. How many GPUs a machine with a
    part of a GPU shows (g6f, gr6f) is not known.
    """
    known = instance_types().get(name)
    if known is None or known.gpu_count == 0 or known.gpu_maker not in set(AcceleratorVendor):
        return None
    vendor = AcceleratorVendor(known.gpu_maker)
    if vendor is AcceleratorVendor.AMD and os is not OperatingSystem.LINUX:
        return None
    return Accelerator(vendor=vendor, count=known.gpu_count)
