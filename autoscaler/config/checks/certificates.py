"""Checks that the server's certificate, its key and the CA file for machines can be used.

Reads the files in `server.tls`, and shows none of their content. `certificate_warnings` checks the validity
period and the host name in `public_url`.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path

from autoscaler.config.checks.contradictions import text
from autoscaler.config.checks.named_files import named_file
from autoscaler.config.files.pem import PemError, certificates, private_key, read_pem
from autoscaler.config.problems import Problem, show
from autoscaler.config.reading.document import Document

# OpenSSL's errors for a key that belongs to another certificate.
_MISMATCH = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}


def tls_problems(document: Document, folder: Path) -> Iterator[Problem]:
    """Return the errors of the files in `server.tls`. `files` reports missing files."""
    checks = {"certificate_file": _certificate, "key_file": _key, "ca_file": _authority}
    usable: dict[str, Path] = {}
    for key, check in checks.items():
        file = named_file(document, folder, "server", "tls", key)
        if file is None:
            continue
        try:
            check(file)
        except PemError as error:
            yield _problem(document, key, error)
        else:
            usable[key] = file
    if "certificate_file" in usable and "key_file" in usable:
        try:
            _pair(document, usable["certificate_file"], usable["key_file"])
        except PemError as error:
            yield _problem(document, "key_file", error)


def authority(document: Document, folder: Path) -> str | None:
    """Return the CA certificates for machines, or None if there is no usable `ca_file`."""
    file = named_file(document, folder, "server", "tls", "ca_file")
    try:
        return _authority(file) if file is not None else None
    except PemError:
        return None  # `tls_problems` reports it


def _problem(document: Document, key: str, error: PemError) -> Problem:
    path = ("server", "tls", key)
    name = text(document.root, *path)
    return document.problem(path, f"{show(name)} {error.what}", error.fix)


def _certificate(file: Path) -> None:
    certificates(read_pem(file))


def _key(file: Path) -> None:
    private_key(read_pem(file))


def _authority(file: Path) -> str:
    pem = read_pem(file)
    certificates(pem)
    if b"PRIVATE KEY" in pem:
        what = "contains a private key, and machines would get it"
        raise PemError(what, "leave only certificates in it")
    try:
        return pem.decode()
    except UnicodeDecodeError:
        what = "contains text that is not UTF-8"
        raise PemError(what, "leave only certificates in it") from None


def _pair(document: Document, certificate: Path, key: Path) -> None:
    """Load both with OpenSSL, as the listener does. Raises PemError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    named = show(text(document.root, "server", "tls", "certificate_file"))
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason in _MISMATCH:
            fix = "name the key of that certificate, or put the server's certificate first"
            what = f"does not match the first certificate in {named}"
            raise PemError(what, fix) from None
        what = f"cannot be used with {named}: {error.reason}"
        raise PemError(what, "create a new certificate and key") from None
