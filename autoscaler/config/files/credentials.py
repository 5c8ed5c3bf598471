"""Reads the secret files of fleet.yaml, each limited in size and format.

No repr, dump or error contains a secret.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretBytes

from autoscaler.config.checks.contradictions import text
from autoscaler.config.checks.named_files import named_file
from autoscaler.config.files.operator_tokens import (
    SHORTEST_TOKEN,
    TOKENS_FIX,
    OperatorToken,
    UnusableTokenFileError,
    is_token,
    parse_operator_tokens,
)
from autoscaler.config.files.pem import PemError, private_key
from autoscaler.config.load import Configuration, read_bounded
from autoscaler.config.problems import ConfigurationError, KeyPath, Problem, show
from autoscaler.config.reading.document import Document

MAX_SECRET_BYTES = 64 * 1024
MAX_WEBHOOK_SECRETS = 16

SHORTEST_WEBHOOK_SECRET = 20
"""Characters of a webhook secret that is not reported as short: as random letters and digits 119 bits.
NIST SP 800-131A requires 112 for HMAC. GitHub asks for "a random string of text with high entropy"
(https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks)."""

_WEBHOOK: KeyPath = ("github", "webhook_secret_file")
_ADMIN: KeyPath = ("server", "admin_token_file")
_METRICS: KeyPath = ("server", "metrics_token_file")
_FIXES = {
    _WEBHOOK: "write one secret per line",
    _ADMIN: TOKENS_FIX,
    _METRICS: "write one token per line, such as the output of openssl rand -hex 32",
}


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
        file = configuration.file(app.private_key_file)
        try:
            pem = _app_key(configuration.document, _app_path(index), file)
        except ConfigurationError as error:
            problems += error.problems
        else:
            found.append(AppCredentials(app.id, SecretBytes(pem)))
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def read_webhook_secrets(configuration: Configuration) -> tuple[SecretBytes, ...]:
    """Return the secrets of the file, one per line, without blank lines; at least one.

    Raises ConfigurationError.
    """
    file = configuration.file(configuration.settings.github.webhook_secret_file)
    return _secrets(configuration.document, _WEBHOOK, file)


def read_admin_tokens(configuration: Configuration) -> tuple[OperatorToken, ...]:
    """Return the operators' tokens; none if no file is configured. Raises ConfigurationError."""
    name = configuration.settings.server.admin_token_file
    if name is None:
        return ()
    return _operator_tokens(configuration.document, _ADMIN, configuration.file(name))


def read_operator_tokens(file: Path) -> tuple[OperatorToken, ...]:
    """Return the tokens of a file that fleet.yaml does not name. Raises ConfigurationError."""
    try:
        return parse_operator_tokens(read_bounded(file, str(file), MAX_SECRET_BYTES))
    except UnusableTokenFileError as error:
        problem = Problem(str(file), 0, "", str(error), TOKENS_FIX)
        raise ConfigurationError([problem]) from None


def exposed_token_file(file: Path) -> Problem | None:
    """Return a warning if every user of the host can read a file of tokens that fleet.yaml does not name."""
    if not file.stat().st_mode & stat.S_IROTH:
        return None
    what = "can be read by every user of this host"
    return Problem(str(file), 0, "", what, f"run chmod o-rwx {file}", warning=True)


def read_metrics_tokens(configuration: Configuration) -> tuple[SecretBytes, ...]:
    """Return the tokens for /metrics; none if no file is configured. Raises ConfigurationError."""
    name = configuration.settings.server.metrics_token_file
    if name is None:
        return ()
    return _tokens(configuration.document, _METRICS, configuration.file(name))


def secret_problems(document: Document, folder: Path) -> Iterator[Problem]:
    """Return the errors of secret files. `files` reports missing files."""
    apps = document.root.get("github", "apps")
    keys = [_app_path(index) for index, _ in (apps.items() if apps else ())]
    readers = {**dict.fromkeys(keys, _app_key), _WEBHOOK: _secrets, _ADMIN: _operator_tokens}
    readers[_METRICS] = _tokens
    for path, read in readers.items():
        file = named_file(document, folder, *path)
        if file is None:
            continue
        try:
            read(document, path, file)
        except ConfigurationError as error:
            yield from error.problems


def short_webhook_secrets(document: Document, folder: Path) -> Iterator[Problem]:
    """Warn of webhook secrets that can be guessed: with one, anyone can sign deliveries."""
    file = named_file(document, folder, *_WEBHOOK)
    try:
        secrets = _secrets(document, _WEBHOOK, file) if file is not None else ()
    except ConfigurationError:
        return  # `secret_problems` reports it
    if any(len(one.get_secret_value()) < SHORTEST_WEBHOOK_SECRET for one in secrets):
        named = show(text(document.root, *_WEBHOOK))
        what = f"{named} has a secret of less than {SHORTEST_WEBHOOK_SECRET} characters, which can be guessed"
        fix = (
            "write the output of openssl rand -hex 32 into the file and into the webhook at GitHub"
        )
        yield document.problem(_WEBHOOK, what, fix, warning=True)


def _app_path(index: int) -> KeyPath:
    return ("github", "apps", index, "private_key_file")


def _app_key(document: Document, path: KeyPath, file: Path) -> bytes:
    """Return the file's key: unencrypted RSA (GitHub Docs, "Managing private keys for GitHub Apps")."""
    pem = _read(document, path, file)
    try:
        key = private_key(pem)
    except PemError as error:
        raise _problem(document, path, error.what) from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise _problem(document, path, "contains a private key that is not RSA")
    return pem


def _secrets(document: Document, path: KeyPath, file: Path) -> tuple[SecretBytes, ...]:
    lines = [line.strip() for line in _read(document, path, file).splitlines()]
    secrets = tuple(SecretBytes(line) for line in lines if line)
    if not secrets:
        raise _problem(document, path, "contains no secret")
    if len(secrets) > MAX_WEBHOOK_SECRETS:
        raise _problem(document, path, f"contains more than {MAX_WEBHOOK_SECRETS} secrets")
    return secrets


def _tokens(document: Document, path: KeyPath, file: Path) -> tuple[SecretBytes, ...]:
    """Return the file's tokens: visible ASCII for a header (RFC 6750), and too long to guess."""
    tokens = _secrets(document, path, file)
    if not all(is_token(token.get_secret_value()) for token in tokens):
        what = (
            f"contains a token that does not have {SHORTEST_TOKEN} to 1024 visible ASCII characters"
        )
        raise _problem(document, path, what)
    return tokens


def _operator_tokens(document: Document, path: KeyPath, file: Path) -> tuple[OperatorToken, ...]:
    try:
        return parse_operator_tokens(_read(document, path, file))
    except UnusableTokenFileError as error:
        raise _problem(document, path, str(error)) from None


def _read(document: Document, path: KeyPath, file: Path) -> bytes:
    try:
        content = read_bounded(file, "", MAX_SECRET_BYTES)
    except ConfigurationError as error:
        # Without the file name: if there is no such file, the name may be the secret itself.
        fix = error.problems[0].fix
        raise ConfigurationError([document.problem(path, error.problems[0].what, fix)]) from None
    if len(content) > MAX_SECRET_BYTES:
        raise _problem(document, path, f"is larger than {MAX_SECRET_BYTES // 1024} KiB")
    return content


def _problem(document: Document, path: KeyPath, what: str) -> ConfigurationError:
    fix = _FIXES.get(path, "save the key file from GitHub without changes")
    named = show(text(document.root, *path))
    return ConfigurationError([document.problem(path, f"{named} {what}", fix)])
