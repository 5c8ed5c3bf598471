"""Reads PEM files that fleet.yaml names: certificates and private keys, bounded in size.

Says why one cannot be used, and shows nothing of what is in it.
"""

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

MAX_PEM_BYTES = 1024 * 1024


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
        raise PemError(f"cannot be read: {error.strerror}", "name a file to read") from None
    if len(content) > MAX_PEM_BYTES:
        raise PemError(f"is larger than {MAX_PEM_BYTES // 1024} KiB", "leave only PEM in it")
    return content


def private_key(pem: bytes) -> PrivateKeyTypes:
    """An unencrypted private key. Raises PemError."""
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError:
        fix = "write it without a password: openssl pkey -in FILE"
        raise PemError("holds an encrypted key", fix) from None
    except (ValueError, UnsupportedAlgorithm):
        fix = "write the key as PEM: -----BEGIN PRIVATE KEY----- and so on"
        raise PemError("holds no private key that can be read", fix) from None


def certificates(pem: bytes) -> list[x509.Certificate]:
    """At least one certificate. Raises PemError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        fix = "name a PEM file: -----BEGIN CERTIFICATE----- and so on"
        raise PemError("holds no certificate that can be read", fix) from None
