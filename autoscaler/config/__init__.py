"""Reads fleet.yaml into frozen Settings, or reports errors with file, line, key and fix."""

from autoscaler.config.catalogue import limits, registration_rate, scopes, sku
from autoscaler.config.checks.skus import not_in_force
from autoscaler.config.configuration import Configuration
from autoscaler.config.credentials import (
    AppCredentials,
    exposed_token_file,
    read_admin_tokens,
    read_metrics_tokens,
    read_operator_tokens,
    read_private_keys,
    read_webhook_secrets,
)
from autoscaler.config.files.operator_tokens import OperatorToken
from autoscaler.config.load import load
from autoscaler.config.problems import ConfigurationError, Problem
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.structure import json_schema, settings_type

__all__ = [
    "AppCredentials",
    "Configuration",
    "ConfigurationError",
    "OperatorToken",
    "Problem",
    "Settings",
    "exposed_token_file",
    "json_schema",
    "limits",
    "load",
    "not_in_force",
    "read_admin_tokens",
    "read_metrics_tokens",
    "read_operator_tokens",
    "read_private_keys",
    "read_webhook_secrets",
    "registration_rate",
    "scopes",
    "settings_type",
    "sku",
]
