"""Reads the secrets that fleet.yaml names files for, each bounded in size and shape.

Secret values are in no repr, dump or problem.
"""

from dataclasses import dataclass

from pydantic import SecretBytes

from autoscaler.config.load import Configuration, read_bounded
from autoscaler.config.problems import ConfigurationError, KeyPath, Problem, show

MAX_SECRET_BYTES = 64 * 1024
MAX_WEBHOOK_SECRETS = 16


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """A GitHub App's id and its private key as PEM."""

    id: int
    private_key: SecretBytes


def read_private_keys(configuration: Configuration) -> tuple[AppCredentials, ...]:
    """Each App's key, in the configured order. Raises ConfigurationError, all at once."""
    found: list[AppCredentials] = []
    problems: list[Problem] = []
    for index, app in enumerate(configuration.settings.github.apps):
        path = ("github", "apps", index, "private_key_file")
        try:
            pem = _read(configuration, path, app.private_key_file)
            what = _key_trouble(pem)
            if what is not None:
                raise _problem(configuration, path, f"{show(app.private_key_file)} {what}")
        except ConfigurationError as error:
            problems += error.problems
        else:
            found.append(AppCredentials(app.id, SecretBytes(pem)))
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def read_webhook_secrets(configuration: Configuration) -> tuple[SecretBytes, ...]:
    """One secret a line, blank lines left out, in the order of the file; at least one.

    Raises ConfigurationError.
    """
    path = ("github", "webhook_secret_file")
    content = _read(configuration, path, configuration.settings.github.webhook_secret_file)
    lines = [line.strip() for line in content.splitlines()]
    secrets = tuple(SecretBytes(line) for line in lines if line)
    named = show(configuration.settings.github.webhook_secret_file)
    if not secrets:
        raise _problem(configuration, path, f"{named} names an empty file")
    if len(secrets) > MAX_WEBHOOK_SECRETS:
        what = f"{named} names a file of more than {MAX_WEBHOOK_SECRETS} lines"
        raise _problem(configuration, path, what)
    return secrets


def _read(configuration: Configuration, path: KeyPath, name: str) -> bytes:
    try:
        content = read_bounded(configuration.file(name), "", MAX_SECRET_BYTES)
    except ConfigurationError as error:
        raise _problem(configuration, path, error.problems[0].what) from None
    if len(content) > MAX_SECRET_BYTES:
        what = f"{show(name)} names a file larger than {MAX_SECRET_BYTES // 1024} KiB"
        raise _problem(configuration, path, what)
    return content


def _key_trouble(pem: bytes) -> str | None:
    """Why a PEM text is no App's key: GitHub's are RSA, unencrypted (GitHub Docs, "Managing private
    keys for GitHub Apps").
    """
    if b"-----BEGIN " not in pem or b"PRIVATE KEY-----" not in pem:
        return "names a file without a PEM private key"
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        return "names an encrypted private key"
    except (ValueError, UnsupportedAlgorithm):
        return "names a private key that cannot be read"
    return None if isinstance(key, rsa.RSAPrivateKey) else "names a private key that is not RSA"


def _problem(configuration: Configuration, path: KeyPath, what: str) -> ConfigurationError:
    webhook = path[-1] == "webhook_secret_file"
    fix = "write one secret a line" if webhook else "save the key that GitHub gave as it is"
    return ConfigurationError([configuration.document.problem(path, what, fix)])
