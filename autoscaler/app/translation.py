"""Converts fleet.yaml into the settings of the provider, GitHub's client and the server.

Pure, except for reading the files that the configuration names.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler import config
from autoscaler.config.document import Document
from autoscaler.config.offerings import Place
from autoscaler.config.problems import nearest
from autoscaler.config.settings import Ec2Settings as Ec2Section
from autoscaler.config.settings import TokenBucket
from autoscaler.config.sku_settings import Image, SkuSettings
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.catalogue import (
    Architecture,
    CapacityType,
    Catalogue,
    LaunchOption,
    Offering,
    OperatingSystem,
    Rate,
)
from autoscaler.model.identifiers import ProviderName, Seconds, SkuName
from autoscaler.model.installations import Installations
from autoscaler.providers.ec2 import instance_types
from autoscaler.providers.ec2.operations import OPERATIONS
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import CanaryImage, Ec2Settings, Ec2Sku
from autoscaler.providers.ec2.throttle import RESOURCE_BUCKETS
from autoscaler.providers.ec2.user_data import render_user_data
from autoscaler.server.settings import Address, ServerSettings, TlsFiles

CLOCK_SKEW: Seconds = 60.0
"""The largest difference of a machine's clock; GitHub's tokens are valid for minutes."""


def offering_problems(document: Document) -> tuple[config.Problem, ...]:
    """Return errors for instance types, quotas and APIs that the project's table does not have."""
    quotas = instance_types.quota_names()
    apis = {"request_buckets": OPERATIONS, "resource_buckets": RESOURCE_BUCKETS}
    return config.validate_offerings(document, _type_problem, quotas, apis)


def catalogue(
    configuration: config.Configuration,
    installations: Installations,
    opened: Mapping[ProviderName, Ec2Provider],
    configured: Mapping[ProviderName, Ec2Provider],
) -> Catalogue:
    """Return the catalogue: offerings of the opened providers, and launch rates of all providers."""
    settings = configuration.settings
    return Catalogue(
        fleet=settings.fleet,
        installations=installations,
        skus={
            SkuName(name): config.sku(settings, name, tuple(_options(sku, opened)))
            for name, sku in settings.skus.items()
        },
        scopes=config.scopes(settings),
        limits=config.limits(settings),
        registration=config.registration_rate(settings),
        launch_rates={name: provider.launch_rate for name, provider in configured.items()},
    )


def github_settings(configuration: config.Configuration) -> GitHubSettings:
    """Return the Apps with their keys. Raises ConfigurationError."""
    keys = tuple(
        AppKey(key.id, key.private_key.get_secret_value().decode())
        for key in config.read_private_keys(configuration)
    )
    return GitHubSettings(configuration.settings.github.api_url, keys)


def ec2_settings(
    configuration: config.Configuration,
    installations: Installations,
    agent_sha256: str,
) -> dict[ProviderName, Ec2Settings]:
    """Return the settings of every EC2 provider, with its SKUs."""
    return {
        ProviderName(name): _ec2(configuration, name, provider.ec2, installations, agent_sha256)
        for name, provider in configuration.settings.providers.items()
        if provider.ec2 is not None
    }


def server_settings(configuration: config.Configuration) -> ServerSettings:
    """Return the server's addresses and certificate."""
    server = configuration.settings.server
    hook, tls = server.webhook_listen, server.tls
    return ServerSettings(
        Address(server.listen.host, server.listen.port),
        Address(hook.host, hook.port) if hook is not None else None,
        TlsFiles(configuration.file(tls.certificate_file), configuration.file(tls.key_file))
        if tls is not None
        else None,
    )


def label_values(settings: config.Settings) -> tuple[list[SkuName], list[ProviderName]]:
    """Return the label values of the metrics: the SKUs and the providers."""
    skus = [SkuName(name) for name in settings.skus]
    return skus, [ProviderName(name) for name in settings.providers]


def health_check_parameters(configuration: config.Configuration) -> dict[SkuName, dict[str, Any]]:
    """Return the parameters of each SKU's health checks: see docs/bootstrap.md."""
    settings = configuration.settings
    return {
        SkuName(name): {
            # Minimum free space: a tenth of the disk, since the image itself takes a part of it.
            "disk_gb": max(1, (sku.disk_gb or 0) // 10),
            "clock_skew_s": CLOCK_SKEW,
            # Does not count against the rate limit (REST API, "Rate limit"). GitHub allows 60 other
            # requests without a token per hour and address.
            "github": settings.github.api_url.rstrip("/") + "/rate_limit",
        }
        for name, sku in settings.skus.items()
    }


def _options(
    sku: SkuSettings, opened: Mapping[ProviderName, Ec2Provider]
) -> Iterator[LaunchOption]:
    for option in sku.launch_options:
        name = ProviderName(option.provider)
        provider = opened.get(name)
        offerings: tuple[Offering, ...] = ()
        if provider is not None and option.instance_types:
            offerings = provider.offerings(option.instance_types, option.capacity, sku.os, sku.arch)
        # A launch option without offerings keeps its place, because cooldowns use its number.
        yield LaunchOption(name, option.capacity, offerings)


def _ec2(
    configuration: config.Configuration,
    name: str,
    ec2: Ec2Section,
    installations: Installations,
    agent_sha256: str,
) -> Ec2Settings:
    settings = configuration.settings
    return Ec2Settings(
        name=ProviderName(name),
        fleet=settings.fleet,
        installations=installations,
        region=ec2.region,
        subnets=ec2.subnets,
        security_groups=ec2.security_groups,
        skus=dict(_ec2_skus(configuration, name, agent_sha256)),
        instance_profile=ec2.instance_profile,
        identity_certificates=tuple(map(configuration.file, ec2.identity_certificates)),
        interruption_queue=ec2.interruption_queue,
        account=ec2.account,
        prices=ec2.prices,
        spot_price_factor=ec2.spot_price_factor,
        offered=_offered(settings, name),
        quotas=_quotas(configuration, name),
        request_buckets=_buckets(ec2.request_buckets),
        resource_buckets=_buckets(ec2.resource_buckets),
    )


def _offered(
    settings: config.Settings, provider: str
) -> dict[CapacityType, frozenset[tuple[str, OperatingSystem]]]:
    """Return the instance types that SKUs launch at a provider, all of them as on-demand, too."""
    found: dict[CapacityType, set[tuple[str, OperatingSystem]]] = {k: set() for k in CapacityType}
    for sku in settings.skus.values():
        for option in sku.launch_options:
            if option.provider == provider:
                for kind in {*option.capacity, CapacityType.ON_DEMAND}:
                    found[kind].update((one, sku.os) for one in option.instance_types or ())
    return {kind: frozenset(types) for kind, types in found.items()}


def _quotas(configuration: config.Configuration, provider: str) -> dict[str, int]:
    of_all = config.limits(configuration.settings).quotas
    mine = f"{provider}/"
    return {key.removeprefix(mine): n for key, n in of_all.items() if key.startswith(mine)}


def _buckets(given: Mapping[str, TokenBucket]) -> dict[str, Rate]:
    return {api: Rate(one.burst, one.per_second) for api, one in given.items()}


def _ec2_skus(
    configuration: config.Configuration, provider: str, agent_sha256: str
) -> Iterator[tuple[SkuName, Ec2Sku]]:
    server = configuration.settings.server
    ca_file = server.tls.ca_file if server.tls is not None else None
    ca_pem = configuration.file(ca_file).read_text() if ca_file is not None else None
    for name, sku in configuration.settings.skus.items():
        if sku.image is None or all(option.provider != provider for option in sku.launch_options):
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
                user_data=render_user_data(
                    sku.os, server.public_url, provider, agent_sha256, ca_pem
                ),
                canary=_canary(sku.image),
            ),
        )


def _canary(image: Image) -> CanaryImage | None:
    canary = image.canary
    return CanaryImage(canary.name, canary.owner, canary.percent) if canary is not None else None


def _type_problem(
    instance_type: str, os: OperatingSystem, arch: Architecture | None, place: Place
) -> tuple[str, str] | None:
    try:
        found = instance_types.instance_type(instance_type)
    except instance_types.InstanceTypeError as error:
        meant = nearest(instance_type, instance_types.instance_types())
        return error.what, error.fix if meant is None else f"did you mean {meant}?"
    try:
        if place.region is not None:
            found.dollars_per_hour(os, instance_types.Prices(place.region, place.prices))
    except instance_types.InstanceTypeError as error:
        return error.what, error.fix
    if arch is None or found.arch is arch:
        return None
    what = f"{found.name} is {found.arch}, the SKU is {arch}"
    return what, f"write arch: {found.arch} in the SKU, or name another type"
