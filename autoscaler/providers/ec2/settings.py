"""The settings of an EC2 provider: its part of fleet.yaml, and what the controller adds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoscaler.config.files.regular_files import read_regular
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.sku import Canary, Image, SkuSettings
from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.model.prices_and_quotas import READ_AS
from autoscaler.providers.ec2.configuration import Ec2OptionKeys, Ec2Section, Ec2SkuKeys
from autoscaler.providers.ec2.instance_types import Prices
from autoscaler.providers.ec2.stock_images import stock_image
from autoscaler.providers.ec2.user_data import render_user_data


@dataclass(frozen=True, slots=True)
class NamedImage:
    """The newest image with this name, a glob, of this owner. `canary` is another one for some launches."""

    name: str
    owner: str = "self"
    canary: Canary | None = None


@dataclass(frozen=True, slots=True)
class Ec2Sku:
    """The machines of one SKU at one provider.

    `keys` are the SKU's in fleet.yaml. `image` is the image that they name, or the canary's in its place.
    `user_data` is plain text without a secret. `options` are the SKU's launch options at this provider,
    by their position in the SKU's `on`.
    """

    name: SkuName
    keys: Ec2SkuKeys
    image: NamedImage
    user_data: str = field(default="", repr=False)
    options: Mapping[int, Ec2OptionKeys] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ec2Settings:
    """One provider in one region and account.

    `section` has the provider's keys in fleet.yaml, with file names relative to `folder`.
    `installations` has the id for tags, and the former ids, whose unused resources are deleted too.
    `offered` are the instance types of the SKUs, with their system, by capacity type. All of them
    are also under on-demand, because limits count on-demand prices.
    """

    name: ProviderName
    fleet: str
    installations: Installations
    section: Ec2Section
    skus: Mapping[SkuName, Ec2Sku]
    offered: Mapping[CapacityType, frozenset[tuple[str, OperatingSystem]]] = field(
        default_factory=dict
    )
    folder: Path = Path()

    def after_adoption(self, taken: InstallationId) -> "Ec2Settings":
        """Return these settings with another installation's id."""
        return replace(self, installations=self.installations.after_adoption(taken))

    @property
    def price_list(self) -> Prices:
        """The prices of machines in this region."""
        ec2 = self.section
        return Prices(ec2.region, ec2.prices, ec2.spot_price_factor)


def ec2_section(settings: Settings, name: ProviderName) -> Ec2Section:
    """Return the `ec2` section of a provider. Raises TypeError if it is of another kind."""
    section = settings.providers[name].section
    if not isinstance(section, Ec2Section):
        raise TypeError(f"provider {name} is not on EC2")
    return section


def ec2_settings(
    name: ProviderName,
    settings: Settings,
    folder: Path,
    installations: Installations,
    agent_sha256: str,
) -> Ec2Settings:
    """Return the settings of one provider. Reads the CA file and boot scripts, relative to `folder`."""
    return Ec2Settings(
        name=name,
        fleet=settings.fleet,
        installations=installations,
        section=ec2_section(settings, name),
        skus=dict(_skus(name, settings, folder, agent_sha256)),
        offered=_offered(settings, name),
        folder=folder,
    )


def _offered(
    settings: Settings, provider: ProviderName
) -> dict[CapacityType, frozenset[tuple[str, OperatingSystem]]]:
    """Return the instance types that SKUs launch at a provider, all of them as on-demand, too."""
    found: dict[CapacityType, set[tuple[str, OperatingSystem]]] = {k: set() for k in READ_AS}
    for sku in settings.skus.values():
        for option in _options(sku, provider).values():
            # A capacity block is prepaid, and has no price and no vCPU quota.
            for kind in {*option.capacity, CapacityType.ON_DEMAND} & READ_AS.keys():
                found[kind].update((one, sku.os) for one in option.instance_types or ())
    return {kind: frozenset(types) for kind, types in found.items()}


def _skus(
    provider: ProviderName, settings: Settings, folder: Path, agent_sha256: str
) -> Iterator[tuple[SkuName, Ec2Sku]]:
    server = settings.server
    ca_file = server.tls.ca_file if server.tls is not None else None
    ca_pem = read_regular(folder / ca_file).decode() if ca_file is not None else None
    for name, sku in settings.skus.items():
        options = _options(sku, provider)
        if sku.image is None or not options or not isinstance(sku, Ec2SkuKeys):
            continue
        script = None
        if sku.boot_script_file is not None:
            # Not read_text: its universal newlines would hide the line ends of Windows.
            script = read_regular(folder / sku.boot_script_file).decode()
        user_data = render_user_data(
            sku.os, server.public_url, provider, agent_sha256, ca_pem, script
        )
        image = _named(sku.image, sku.arch, ec2_section(settings, provider).region)
        yield SkuName(name), Ec2Sku(SkuName(name), sku, image, user_data, options)


def _named(image: Image, arch: Architecture, region: str) -> NamedImage:
    """Return the image that a SKU names, or the one that its word for a stock image means."""
    if image.stock is not None:
        name, owner = stock_image(image.stock, arch, region)
        return NamedImage(name, owner, image.canary)
    return NamedImage(image.name or "", image.owner, image.canary)


def _options(sku: SkuSettings, provider: ProviderName) -> dict[int, Ec2OptionKeys]:
    """Return the SKU's launch options at this provider, by their position in `on`."""
    return {
        index: option
        for index, option in enumerate(sku.launch_options)
        if option.provider == provider and isinstance(option, Ec2OptionKeys)
    }
