"""Creates the endpoint of /webhook and, if an operator's token is configured, that of /admin."""

from autoscaler import config
from autoscaler.controller.intake import Intake
from autoscaler.controller.operator_actions import OperatorActions
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.fleet_queries import FleetQueries
from autoscaler.controller.ports.telemetry import DeliveryTelemetry
from autoscaler.github.webhook import verify_signature
from autoscaler.server.admin import AdminEndpoint
from autoscaler.server.serving import Endpoint
from autoscaler.server.webhook import WebhookEndpoint


def webhook_endpoint(
    configuration: config.Configuration, intake: Intake, clock: Clock, telemetry: DeliveryTelemetry
) -> WebhookEndpoint:
    """Create the endpoint of /webhook. Raises ConfigurationError."""
    secrets = [one.get_secret_value() for one in config.read_webhook_secrets(configuration)]
    return WebhookEndpoint(
        lambda body, header: verify_signature(body, header, secrets),
        intake.submit,
        clock,
        telemetry,
    )


def admin_endpoints(
    configuration: config.Configuration, operator_actions: OperatorActions, queries: FleetQueries
) -> list[Endpoint]:
    """Create the endpoint of /admin if there is a token. Without one, return an empty list.

    Raises ConfigurationError.
    """
    tokens = [token.get_secret_value() for token in config.read_admin_tokens(configuration)]
    return [AdminEndpoint(operator_actions, queries, tokens)] if tokens else []
