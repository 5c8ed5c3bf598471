"""Where a controller answers, the token to send there, and the certificates to trust."""

import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic_core import PydanticCustomError

from autoscaler import config
from autoscaler.config.settings.scalars import parse_secure_url, parse_url
from autoscaler.providers.registry import provider_kinds


class UnusableUrlError(Exception):
    """A URL to which the token is not sent; the text gives the reason and a fix."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A controller's `url`, the token to send there, and the certificates to trust.

    `problems` are those of a fleet.yaml that the endpoint does without.
    """

    url: str
    token: config.OperatorToken
    trust: ssl.SSLContext
    problems: tuple[config.Problem, ...] = ()


def configured_endpoint(
    file: Path, url: str | None = None, token_file: Path | None = None
) -> Endpoint:
    """Return the endpoint of the controller of a fleet.yaml.

    `url` is the controller's URL, if it is not `server.public_url`, and `token_file` has the token to send, if
    it is not of `server.admin_token_file`. Raises ConfigurationError, also if fleet.yaml has no token, and
    UnusableUrlError.
    """
    configuration = config.load(file, provider_kinds(), files=False)
    server = configuration.settings.server
    tokens = (
        config.read_admin_tokens(configuration)
        if token_file is None
        else config.read_operator_tokens(token_file)
    )
    if not tokens:
        raise _problem(
            configuration,
            ("server", "admin_token_file"),
            "is not set, so the controller has no /admin endpoints",
            "name a file with a token, and restart the controller: see docs/operations.md",
        )
    checked = server.public_url if url is None else _checked(url, insecure=server.insecure)
    return Endpoint(checked, _chosen(tokens), _trust(configuration))


def given_endpoint(url: str, token_file: Path, file: Path | None) -> Endpoint:
    """Return the endpoint at a URL, which needs no valid fleet.yaml: it serves in an incident.

    If `file` is given and valid, its server.tls.ca_file and server.insecure count. Otherwise the URL must be
    https, and the CAs of this host count (OpenSSL also reads `SSL_CERT_FILE`). Raises UnusableUrlError, and
    ConfigurationError for the file of the token.
    """
    token = _chosen(config.read_operator_tokens(token_file))
    if file is not None:
        try:
            configuration = config.load(file, provider_kinds(), files=False)
            trust = _trust(configuration)
        except config.ConfigurationError as error:
            without = given_endpoint(url, token_file, None)
            return replace(without, problems=error.problems)
        insecure = configuration.settings.server.insecure
        return Endpoint(_checked(url, insecure=insecure), token, trust)
    return Endpoint(_checked(url, insecure=False), token, ssl.create_default_context())


def _chosen(tokens: tuple[config.OperatorToken, ...]) -> config.OperatorToken:
    """Return the token to send: the last one that may operate, else the last one."""
    return next((one for one in reversed(tokens) if one.operator.may_operate), tokens[-1])


def _checked(url: str, *, insecure: bool) -> str:
    """Return the URL if it is encrypted or fleet.yaml allows plain HTTP. Raises UnusableUrlError."""
    try:
        return parse_url(url) if insecure else parse_secure_url(url)
    except PydanticCustomError as error:
        reply = error.context or {}
        raise UnusableUrlError(f"{error.message()}; fix: {reply.get('fix')}") from None


def _trust(configuration: config.Configuration) -> ssl.SSLContext:
    """Trust the system's CAs, or `server.tls.ca_file` if it is set. Raises ConfigurationError."""
    tls = configuration.settings.server.tls
    if tls is None or tls.ca_file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=configuration.file(tls.ca_file))
    except OSError as error:
        what = f"cannot be used: {error.strerror or error}"
        fix = "name a PEM file with the CA certificate"
        raise _problem(configuration, ("server", "tls", "ca_file"), what, fix) from None


def _problem(
    configuration: config.Configuration, path: tuple[str, ...], what: str, fix: str
) -> config.ConfigurationError:
    problem = configuration.document.problem(path, what, fix)
    return config.ConfigurationError([problem])
