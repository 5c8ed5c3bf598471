"""Converts fleet.yaml into the catalogue and the settings of GitHub's client and the server.

Pure, except for reading the files that the configuration names.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from autoscaler import config
from autoscaler.app.installations import installation_parameters
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings.sku import Accelerator, Driver, SkuSettings
from autoscaler.controller.ports.bootstrap import HealthChecks
from autoscaler.controller.ports.provider import Provider, ProviderFactory
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.catalogue import (
    Catalogue,
    LaunchOption,
)
from autoscaler.model.identifiers import Installations, ProviderName, Seconds, SkuName
from autoscaler.server.listening.settings import ServerSettings, TlsFiles

BROKER = "https://broker.actions.githubusercontent.com/health"
CLOCK_SKEW: Seconds = 60.0
"""The largest difference of a machine's clock; GitHub's tokens are valid for minutes."""


def catalogue(
    configuration: config.Configuration,
    installations: Installations,
    opened: Collection[ProviderName],
    providers: Mapping[ProviderName, Provider],
) -> Catalogue:
    """Return the catalogue: offerings of the opened providers, and launch rates of all providers."""
    settings = configuration.settings
    open_providers = {name: providers[name] for name in opened}
    able = {name: provider.capabilities for name, provider in providers.items()}
    return Catalogue(
        fleet=settings.fleet,
        installations=installations,
        skus={
            SkuName(name): config.sku(
                settings, name, tuple(_options(settings, SkuName(name), sku, open_providers))
            )
            for name, sku in settings.skus.items()
        },
        scopes=config.scopes(settings),
        limits=config.limits(settings),
        registration=config.registration_rate(settings),
        launch_rates={name: one.launch_rate for name, one in able.items() if one.launch_rate},
        largest_requests={name: one.largest_request for name, one in able.items()},
    )


def provider_factories(
    configuration: config.Configuration, kinds: Sequence[ProviderKind]
) -> dict[ProviderName, ProviderFactory]:
    """Return the factory of each configured provider."""
    settings, folder = configuration.settings, configuration.path.parent
    return {
        ProviderName(name): kind.factory(ProviderName(name), settings, folder)
        for name, section in settings.providers.items()
        for kind in kinds
        if section.kind == kind.key
    }


def github_settings(configuration: config.Configuration) -> GitHubSettings:
    """Return the Apps with their keys. Raises ConfigurationError."""
    keys = tuple(
        AppKey(key.id, key.private_key.get_secret_value().decode())
        for key in config.read_private_keys(configuration)
    )
    github = configuration.settings.github
    return GitHubSettings(github.api_url, keys, webhooks=github.webhook is None)


def server_settings(configuration: config.Configuration) -> ServerSettings:
    """Return the server's addresses and certificate."""
    server = configuration.settings.server
    tls = server.tls
    return ServerSettings(
        server.listen,
        server.webhook_listen,
        TlsFiles(configuration.file(tls.certificate_file), configuration.file(tls.key_file))
        if tls is not None
        else None,
    )


def health_check_parameters(
    configuration: config.Configuration, kinds: Sequence[ProviderKind]
) -> dict[SkuName, HealthChecks]:
    """Return the parameters of each SKU's health checks: see docs/bootstrap.md. Raises ConfigurationError."""
    settings = configuration.settings
    return {
        SkuName(name): HealthChecks(
            {
                # Minimum free space: a tenth of the disk, since the image itself takes a part of it.
                "disk_gb": max(1, (sku.root_disk_gb or 0) // 10),
                "clock_skew_s": CLOCK_SKEW,
                # Does not count against the rate limit (REST API, "Rate limit"). GitHub allows 60 other
                # requests without a token per hour and address.
                "github": settings.github.api_url.rstrip("/") + "/rate_limit",
                **_broker(settings.github.api_url),
                **({} if sku.accelerator is None else {"accelerator": _plain(sku.accelerator)}),
                **installation_parameters(configuration, name),
            },
            _default_accelerators(settings, sku, kinds),
        )
        for name, sku in settings.skus.items()
    }


def _broker(api_url: str) -> dict[str, Any]:
    """Return the check of the host from which runners of github.com get their jobs.

    The address is the one that GitHub's own connectivity checks use (`ConnectivityChecks` in a job's
    variables). It needs no token, and is not part of the REST API with its limits. Other installations of
    GitHub serve runners and the API from the same hosts, or from hosts that only GitHub knows.
    """
    is_public = urlsplit(api_url).hostname == "api.github.com"
    return {"broker": BROKER} if is_public else {}


def _plain(accelerator: Accelerator) -> dict[str, Any]:
    return accelerator.model_dump(mode="json", exclude_none=True)


def _default_accelerators(
    settings: config.Settings, sku: SkuSettings, kinds: Sequence[ProviderKind]
) -> dict[tuple[ProviderName, str], dict[str, Any]]:
    """Return what machines of a SKU without `accelerator` must have, by provider and instance type.

    The launch options of a SKU may have types with different numbers of GPUs.
    """
    if sku.accelerator is not None or sku.driver is Driver.NONE:
        return {}
    return {
        (ProviderName(option.provider), instance_type): _plain(accelerator)
        for option in sku.launch_options
        for kind in kinds
        if kind.key == settings.providers[option.provider].kind
        for instance_type, accelerator in kind.accelerators(sku, option).items()
    }


def _options(
    settings: config.Settings,
    name: SkuName,
    sku: SkuSettings,
    opened: Mapping[ProviderName, Provider],
) -> Iterator[LaunchOption]:
    for index, option in enumerate(sku.launch_options):
        provider = opened.get(ProviderName(option.provider))
        offerings = provider.offerings(name, index) if provider is not None else ()
        capacity_types = tuple(dict.fromkeys(offering.capacity_type for offering in offerings))
        # A launch option without offerings keeps its place, because cooldowns use its number.
        wait = settings.providers[option.provider].section.longest_wait()
        yield LaunchOption(ProviderName(option.provider), capacity_types, offerings, wait)
