"""Reads the PEM files of fleet.yaml: certificates and private keys, limited in size.

Errors give the reason and do not show the content.
"""

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from autoscaler.config.files.regular_files import UnusableFileError, open_regular
from autoscaler.config.problems import unreadable_fix

MAX_PEM_BYTES = 1024 * 1024

_OTHERS = {
    b"-----BEGIN CERTIFICATE REQUEST-----": "a certificate request",
    b"-----BEGIN CERTIFICATE-----": "a certificate",
    b"PUBLIC KEY-----": "a public key",
}
"""The names of other contents of PEM files, by their markers (RFC 7468, 5 to 13)."""


def read_pem(file: Path) -> bytes:
    """Return a file's content. Raises UnusableFileError if it is unreadable or too large."""
    try:
        with open_regular(file) as opened:
            content = opened.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise UnusableFileError(
            f"cannot be read: {error.strerror}", unreadable_fix(error)
        ) from None
    if len(content) > MAX_PEM_BYTES:
        raise UnusableFileError(
            f"is larger than {MAX_PEM_BYTES // 1024} KiB", "leave only PEM in it"
        )
    return content


def private_key(pem: bytes) -> PrivateKeyTypes:
    """Return an unencrypted private key. Raises UnusableFileError."""
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError:
        fix = "remove the password: openssl pkey -in FILE"
        raise UnusableFileError("contains an encrypted key", fix) from None
    except (ValueError, UnsupportedAlgorithm):
        fix = "use a PEM file that begins with -----BEGIN PRIVATE KEY-----"
        for mark, found in _OTHERS.items():
            if mark in pem:
                raise UnusableFileError(f"contains {found}, not a private key", fix) from None
        raise UnusableFileError("contains no readable private key", fix) from None


def certificates(pem: bytes) -> list[x509.Certificate]:
    """Return at least one certificate. Raises UnusableFileError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        fix = "use a PEM file that begins with -----BEGIN CERTIFICATE-----"
        if b"PRIVATE KEY-----" in pem:
            raise UnusableFileError("contains a private key, not a certificate", fix) from None
        raise UnusableFileError("contains no readable certificate", fix) from None


def fits(certificate: bytes, key: bytes) -> bool:
    """Return whether a private key is that of the first certificate. Raises UnusableFileError."""
    try:
        return certificates(certificate)[0].public_key() == private_key(key).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False
