"""Creates the endpoints of /webhook and of the console, and the metrics; reads tokens."""

from importlib.metadata import version

from autoscaler import config
from autoscaler.console.assets import read_assets
from autoscaler.console.links import GitHubPages
from autoscaler.console.pages import Pages
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.system import SystemClock
from autoscaler.github.webhook import verify_signature
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.operators import Operator
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.server.operators.console import ConsoleEndpoint
from autoscaler.server.tokens import TokenFile, UnusableTokensError, WrongTokens
from autoscaler.server.webhook import Accept, WebhookEndpoint


def webhook_endpoint(
    configuration: config.Configuration, accept: Accept, clock: Clock, telemetry: Telemetry
) -> WebhookEndpoint | None:
    """Create the endpoint of /webhook, or None without webhooks. Raises ConfigurationError."""
    if configuration.settings.github.webhook is not None:
        return None
    secrets = [one.get_secret_value() for one in config.read_webhook_secrets(configuration)]
    return WebhookEndpoint(
        lambda body, header: verify_signature(body, header, secrets),
        accept,
        clock,
        telemetry,
    )


def new_telemetry(configuration: config.Configuration, clock: SystemClock) -> PrometheusTelemetry:
    """Create the metrics, with the names of fleet.yaml as their labels' values."""
    settings = configuration.settings
    return PrometheusTelemetry(
        map(SkuName, settings.skus),
        map(ProviderName, settings.providers),
        version("gpu-runner-autoscaler"),
        settings.metrics.repositories,
        now=clock.now,
        webhooks=settings.github.webhook is None,
    )


def metrics_tokens(configuration: config.Configuration) -> list[bytes]:
    """Return the tokens for /metrics; none if it needs none. Raises ConfigurationError."""
    return [one.get_secret_value() for one in config.read_metrics_tokens(configuration)]


def token_file(configuration: config.Configuration) -> TokenFile | None:
    """Return the tokens of operators, or None without a file of them. Raises UnusableTokensError."""
    name = configuration.settings.server.admin_token_file
    if name is None:
        return None

    def read() -> list[tuple[bytes, Operator]]:
        try:
            found = config.read_admin_tokens(configuration)
        except config.ConfigurationError as error:
            raise UnusableTokensError(str(error)) from None
        return [(one.token.get_secret_value(), one.operator) for one in found]

    return TokenFile(configuration.file(name), read)


def console_endpoint(
    configuration: config.Configuration,
    queries: FleetQueries,
    operators: TokenFile,
    wrong_tokens: WrongTokens,
) -> ConsoleEndpoint:
    """Create the console. Its cookie is sent over TLS only if `server.public_url` is https."""
    settings = configuration.settings
    assets = read_assets()
    pages = Pages(
        settings.fleet,
        GitHubPages.of_api(str(settings.github.api_url)),
        {asset.name: asset.address for asset in assets},
    )
    secure = str(settings.server.public_url).startswith("https://")
    return ConsoleEndpoint(queries, pages, assets, operators.tokens, wrong_tokens, secure=secure)
