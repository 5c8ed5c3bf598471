"""Reads the secret files of fleet.yaml, each limited in size and format.

No repr, dump or error contains a secret.
"""

import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretBytes

from autoscaler.config.configuration import Configuration
from autoscaler.config.files.operator_tokens import (
    SHORTEST_TOKEN,
    TOKENS_FIX,
    OperatorToken,
    is_token,
    parse_operator_tokens,
)
from autoscaler.config.files.pem import private_key
from autoscaler.config.files.regular_files import UnusableFileError, read_bounded
from autoscaler.config.problems import ConfigurationError, KeyPath, Problem, show

MAX_SECRET_BYTES = 64 * 1024
MAX_WEBHOOK_SECRETS = 16

SHORTEST_WEBHOOK_SECRET = 20
"""Characters of a webhook secret that is not reported as short: as random letters and digits 119 bits.
NIST SP 800-131A requires 112 for HMAC. GitHub asks for "a random string of text with high entropy"
(https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks)."""

_WEBHOOK: KeyPath = ("github", "webhook_secret_file")
_ADMIN: KeyPath = ("server", "admin_token_file")
_METRICS: KeyPath = ("server", "metrics_token_file")

_STRONGER = "write the output of openssl rand -hex 32 into the file and into the webhook at GitHub"


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """A GitHub App's id and its private key as PEM."""

    id: int
    private_key: SecretBytes


def read_private_keys(configuration: Configuration) -> tuple[AppCredentials, ...]:
    """Return each App's key, in the configured order. Raises ConfigurationError with all errors."""
    found: list[AppCredentials] = []
    problems: list[Problem] = []
    for index, app in enumerate(configuration.settings.github.apps):
        path = ("github", "apps", index, "private_key_file")
        try:
            found.append(AppCredentials(app.id, _read(configuration, path, app.private_key_file)))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def read_webhook_secrets(configuration: Configuration) -> tuple[SecretBytes, ...]:
    """Return the secrets of the file, one per line, without blank lines; none without webhooks.

    Raises ConfigurationError.
    """
    name = configuration.settings.github.webhook_secret_file
    return _read(configuration, _WEBHOOK, name) if name is not None else ()


def read_admin_tokens(configuration: Configuration) -> tuple[OperatorToken, ...]:
    """Return the operators' tokens; none if no file is configured. Raises ConfigurationError."""
    name = configuration.settings.server.admin_token_file
    return _read(configuration, _ADMIN, name) if name is not None else ()


def read_metrics_tokens(configuration: Configuration) -> tuple[SecretBytes, ...]:
    """Return the tokens for /metrics; none if no file is configured. Raises ConfigurationError."""
    name = configuration.settings.server.metrics_token_file
    return _read(configuration, _METRICS, name) if name is not None else ()


def read_operator_tokens(file: Path) -> tuple[OperatorToken, ...]:
    """Return the tokens of a file that fleet.yaml does not name. Raises ConfigurationError."""
    try:
        return parse_operator_tokens(read_bounded(file, str(file), MAX_SECRET_BYTES))
    except UnusableFileError as error:
        problem = Problem(str(file), 0, "", str(error), TOKENS_FIX)
        raise ConfigurationError([problem]) from None


def exposed_token_file(file: Path) -> Problem | None:
    """Return a warning if every user of the host can read a file of tokens that fleet.yaml does not name."""
    if not file.stat().st_mode & stat.S_IROTH:
        return None
    what = "can be read by every user of this host"
    return Problem(str(file), 0, "", what, f"run chmod o-rwx {file}", warning=True)


def secret_problems(configuration: Configuration) -> Iterator[Problem]:
    """Return the errors of secret files, and a warning about webhook secrets that can be guessed.

    `named_files` reports missing files, and `certificates` the errors of the server's key.
    """
    for path, name in configuration.named_files():
        if path[-1] not in _PARSERS or configuration.readable_file(name) is None:
            continue
        try:
            found = _read(configuration, path, name)
        except ConfigurationError as error:
            yield from error.problems
        else:
            if path == _WEBHOOK and any(map(_is_short, found)):
                what = (
                    f"{show(name)} has a secret of less than {SHORTEST_WEBHOOK_SECRET} characters, "
                    "which can be guessed"
                )
                yield configuration.warning(path, what, _STRONGER)


def _is_short(secret: SecretBytes) -> bool:
    """Return True for a webhook secret that can be guessed: with one, anyone can sign deliveries."""
    return len(secret.get_secret_value()) < SHORTEST_WEBHOOK_SECRET


def _read(configuration: Configuration, path: KeyPath, name: str) -> Any:
    """Return what the parser of a key makes of the file's content. Raises ConfigurationError."""
    parse, fix = _PARSERS[path[-1]]
    try:
        content = read_bounded(configuration.file(name), "", MAX_SECRET_BYTES)
    except ConfigurationError as error:
        # Without the file name: if there is no such file, the name may be the secret itself.
        (problem,) = error.problems
        raise ConfigurationError([configuration.error(path, problem.what, problem.fix)]) from None
    what = f"is larger than {MAX_SECRET_BYTES // 1024} KiB"
    if len(content) <= MAX_SECRET_BYTES:
        try:
            return parse(content)
        except UnusableFileError as error:
            what = error.what
    raise ConfigurationError([configuration.error(path, f"{show(name)} {what}", fix)])


def _parse_app_key(pem: bytes) -> SecretBytes:
    """Return the file's key: unencrypted RSA (GitHub Docs, "Managing private keys for GitHub Apps")."""
    if not isinstance(private_key(pem), rsa.RSAPrivateKey):
        raise UnusableFileError("contains a private key that is not RSA")
    return SecretBytes(pem)


def _parse_secrets(content: bytes) -> tuple[SecretBytes, ...]:
    lines = [line.strip() for line in content.splitlines()]
    secrets = tuple(SecretBytes(line) for line in lines if line)
    if not secrets:
        raise UnusableFileError("contains no secret")
    if len(secrets) > MAX_WEBHOOK_SECRETS:
        raise UnusableFileError(f"contains more than {MAX_WEBHOOK_SECRETS} secrets")
    return secrets


def _parse_tokens(content: bytes) -> tuple[SecretBytes, ...]:
    """Return the file's tokens: visible ASCII for a header (RFC 6750), and too long to guess."""
    tokens = _parse_secrets(content)
    if not all(is_token(token.get_secret_value()) for token in tokens):
        what = f"does not have {SHORTEST_TOKEN} to 1024 visible ASCII characters"
        raise UnusableFileError(f"contains a token that {what}")
    return tokens


_PARSERS: Mapping[str | int, tuple[Callable[[bytes], Any], str]] = {
    "private_key_file": (_parse_app_key, "save the key file from GitHub without changes"),
    "webhook_secret_file": (_parse_secrets, "write one secret per line"),
    "admin_token_file": (parse_operator_tokens, TOKENS_FIX),
    "metrics_token_file": (
        _parse_tokens,
        "write one token per line, such as the output of openssl rand -hex 32",
    ),
}
"""By key: what reads the content of its files, or raises UnusableFileError, and the fix."""
