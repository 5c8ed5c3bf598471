"""Writes the files of a fleet's folder that need no answer of GitHub: each only if it is missing."""

import secrets
from datetime import datetime
from pathlib import Path

from autoscaler.config import json_schema
from autoscaler.providers.registry import provider_kinds
from autoscaler.setup import choices
from autoscaler.setup.certificates import VALID, Pair, is_due, make_authority, make_server
from autoscaler.setup.private_files import PUBLIC, NotWrittenError, replace, write_new


def write_missing(folder: Path, fleet: str, host: str, now: datetime) -> list[str]:
    """Write the operator's token, the certificates and the schema. Return a line for each file.

    Raises NotWrittenError.
    """
    lines = []
    tokens = folder / choices.TOKENS
    if not tokens.exists():
        write_new(tokens, f"owner operate {new_secret()}\n".encode())
        lines.append(f"wrote {tokens}: a token for the console and for commands such as status")
    schema = folder / choices.SCHEMA
    if not schema.exists():
        write_new(schema, json_schema(provider_kinds()).encode(), PUBLIC)
        lines.append(f"wrote {schema}: editors check fleet.yaml with it")
    return lines + _certificates(folder, fleet, host, now)


def new_secret() -> str:
    """Return a secret that cannot be guessed: 256 bits in hexadecimal digits."""
    return secrets.token_hex(32)


def _certificates(folder: Path, fleet: str, host: str, now: datetime) -> list[str]:
    lines = []
    ca, ca_key = folder / choices.CA, folder / choices.CA_KEY
    server, key = folder / choices.CERTIFICATE, folder / choices.CERTIFICATE_KEY
    if not ca.exists() and not server.exists():
        authority = make_authority(fleet, now)
        write_new(ca_key, authority.key)
        write_new(ca, authority.certificate, PUBLIC)
        lines.append(f"wrote {ca} and {ca_key}: the fleet's own CA, which only its machines trust")
    if not ca_key.exists():
        return lines  # certificates of another authority, which this command does not renew
    due = not server.exists() or is_due(_read(server), host, now)
    if due:
        try:
            made = make_server(Pair(_read(ca), _read(ca_key)), host, now)
        except (ValueError, TypeError):  # TypeError: a key with a password
            raise NotWrittenError(
                f"{ca_key} cannot sign with {ca}: it is no elliptic-curve key in PEM without a password; move "
                f"both away for a new CA, or write {server} and {key} yourself and move {ca_key} away"
            ) from None
        # The controller reads both again when one has changed, and keeps the old pair while they do not fit.
        replace(key, made.key)
        replace(server, made.certificate, PUBLIC)
        until = (now + VALID).strftime("%Y-%m-%d")
        lines.append(
            f"wrote {server} and {key}: for {host}, until {until}; init renews it in the last 60 days"
        )
    return lines


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotWrittenError(f"{file}: cannot be read: {error.strerror}") from None
