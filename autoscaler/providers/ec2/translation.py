"""Converts fleet.yaml into the settings of an EC2 provider. Its only I/O: the CA file and boot scripts."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from autoscaler.config.files.regular_files import read_regular
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.sku import Image, SkuSettings
from autoscaler.model.catalogue import CapacityType, OperatingSystem, Rate
from autoscaler.model.identifiers import Installations, ProviderName, SkuName
from autoscaler.model.prices_and_quotas import READ_AS
from autoscaler.providers.ec2.configuration import (
    Ec2OptionKeys,
    Ec2Section,
    Ec2SkuKeys,
    TokenBucket,
    Volume,
)
from autoscaler.providers.ec2.launching.user_data import render_user_data
from autoscaler.providers.ec2.settings import (
    CanaryImage,
    Ec2Option,
    Ec2Settings,
    Ec2Sku,
    VolumeOptions,
)


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
    """Return the settings of one provider, with its SKUs. File names are relative to `folder`."""
    ec2 = ec2_section(settings, name)
    return Ec2Settings(
        name=name,
        fleet=settings.fleet,
        installations=installations,
        region=ec2.region,
        subnets=ec2.subnets,
        security_groups=ec2.security_groups,
        skus=dict(_skus(name, settings, folder, agent_sha256)),
        public_ip=ec2.public_ip,
        instance_profile=ec2.instance_profile,
        tags=ec2.tags,
        identity_certificates=tuple(folder / file for file in ec2.identity_certificates),
        interruption_queue=ec2.interruption_queue,
        rebalance_recommendations=ec2.rebalance_recommendations,
        account=ec2.account,
        prices=ec2.prices,
        spot_price_factor=ec2.spot_price_factor,
        offered=_offered(settings, name),
        quotas=ec2.quota_limits(),
        request_buckets=_buckets(ec2.request_buckets),
        resource_buckets=_buckets(ec2.resource_buckets),
    )


def _offered(
    settings: Settings, provider: ProviderName
) -> dict[CapacityType, frozenset[tuple[str, OperatingSystem]]]:
    """Return the instance types that SKUs launch at a provider, all of them as on-demand, too."""
    found: dict[CapacityType, set[tuple[str, OperatingSystem]]] = {k: set() for k in READ_AS}
    for sku in settings.skus.values():
        for option in _options(sku, provider).values():
            # A capacity block is prepaid, and has no price and no vCPU quota.
            for kind in {*option.capacity_types, CapacityType.ON_DEMAND} & READ_AS.keys():
                found[kind].update((one, sku.os) for one in option.instance_types)
    return {kind: frozenset(types) for kind, types in found.items()}


def _buckets(given: Mapping[str, TokenBucket]) -> dict[str, Rate]:
    return {api: Rate(one.burst, one.per_second) for api, one in given.items()}


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
        yield (
            SkuName(name),
            Ec2Sku(
                name=SkuName(name),
                os=sku.os,
                arch=sku.arch,
                image_name=sku.image.name,
                image_owner=sku.image.owner,
                disk_gb=sku.disk_gb,
                volume=_volume(sku.volume),
                tags=sku.tags,
                user_data=render_user_data(
                    sku.os,
                    server.public_url,
                    provider,
                    agent_sha256,
                    ca_pem,
                    _boot_script(sku, folder),
                ),
                canary=_canary(sku.image),
                options=options,
            ),
        )


def _options(sku: SkuSettings, provider: ProviderName) -> dict[int, Ec2Option]:
    """Return the SKU's launch options at this provider, by their position in `on`."""
    return {
        index: Ec2Option(
            option.instance_types or (),
            option.capacity,
            option.efa_interfaces,
            option.placement_group,
            option.capacity_reservation,
        )
        for index, option in enumerate(sku.launch_options)
        if option.provider == provider and isinstance(option, Ec2OptionKeys)
    }


def _boot_script(sku: Ec2SkuKeys, folder: Path) -> str | None:
    if sku.boot_script_file is None:
        return None
    # Not read_text: its universal newlines would hide the line ends of Windows.
    return read_regular(folder / sku.boot_script_file).decode()


def _volume(given: Volume | None) -> VolumeOptions:
    if given is None:
        return VolumeOptions()
    return VolumeOptions(given.iops, given.throughput, given.initialization_rate, given.kms_key)


def _canary(image: Image) -> CanaryImage | None:
    canary = image.canary
    return CanaryImage(canary.name, canary.owner, canary.percent) if canary is not None else None
