"""Reads PEM files that fleet.yaml names: certificates and private keys, bounded in size.

Says why one cannot be used, and shows nothing of what is in it.
"""

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from autoscaler.config.problems import unreadable_fix

MAX_PEM_BYTES = 1024 * 1024

_OTHERS = {
    b"-----BEGIN CERTIFICATE REQUEST-----": "a certificate request",
    b"-----BEGIN CERTIFICATE-----": "a certificate",
    b"PUBLIC KEY-----": "a public key",
}
"""What else PEM files hold (RFC 7468, 5 to 13), by how it is marked."""


class PemError(ValueError):
    """A file that cannot be used: `what` goes after its name, `fix` says what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def read_pem(file: Path) -> bytes:
    """A file's content. Raises PemError when it cannot be read or is too large."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise PemError(f"cannot be read: {error.strerror}", unreadable_fix(error)) from None
    if len(content) > MAX_PEM_BYTES:
        raise PemError(f"is larger than {MAX_PEM_BYTES // 1024} KiB", "leave only PEM in it")
    return content


def private_key(pem: bytes) -> PrivateKeyTypes:
    """An unencrypted private key. Raises PemError."""
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError:
        fix = "remove the password: openssl pkey -in FILE"
        raise PemError("contains an encrypted key", fix) from None
    except (ValueError, UnsupportedAlgorithm):
        fix = "write the key as PEM: -----BEGIN PRIVATE KEY----- and so on"
        for mark, found in _OTHERS.items():
            if mark in pem:
                raise PemError(f"contains {found}, not a private key", fix) from None
        raise PemError("contains no readable private key", fix) from None


def certificates(pem: bytes) -> list[x509.Certificate]:
    """At least one certificate. Raises PemError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        fix = "name a PEM file: -----BEGIN CERTIFICATE----- and so on"
        if b"PRIVATE KEY-----" in pem:
            raise PemError("contains a private key, not a certificate", fix) from None
        raise PemError("contains no readable certificate", fix) from None
