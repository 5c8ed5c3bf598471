"""Verifies instance identity documents.

Accepts only the RSA-2048 format (EC2 User Guide, "Instance identity documents"). Uses only the signed
content, and trusts only pinned certificates, whose expiry date is ignored. Refuses all documents of a
region without a pinned certificate.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.config.files.regular_files import read_regular
from autoscaler.controller.ports.provider import ProofRefusedError, ProvenIdentity
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.ec2.identity.cms import MIN_KEY_BITS, signed_content

MAX_PROOF_BYTES = 4 * 1024
"""A real document has about 2 KiB."""

_BER_SEQUENCE = 0x30
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,32}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_WORD = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True)
class IdentityVerifier:
    """Verifies documents of one region with `certificates`."""

    region: str
    certificates: Sequence[x509.Certificate]

    def verify(self, proof: bytes, account: str) -> ProvenIdentity:
        """Verify a PKCS7 document, as the metadata service returns it (base64) or decoded.

        Takes 0.15 ms. A thread would not help, because it would hold Python's lock as long.
        Raises ProofRefusedError with the reason malformed, certificate, signature, account or region.
        """
        if len(proof) > MAX_PROOF_BYTES:
            raise ProofRefusedError("malformed", f"more than {MAX_PROOF_BYTES} bytes")
        content = signed_content(_decoded(proof), self.certificates)
        document = _document(content)
        if document["accountId"] != account:
            raise ProofRefusedError("account")
        if document["region"] != self.region:
            raise ProofRefusedError("region")
        return ProvenIdentity(
            provider_id=ProviderMachineId(document["instanceId"]),
            image=document["imageId"],
            launch_time=document["pendingTime"],
        )


def pinned_certificates(region: str, extra: Iterable[Path] = ()) -> tuple[x509.Certificate, ...]:
    """Return AWS's certificates for the region, and those in the given PEM files.

    Raises ValueError, naming the file, if one cannot be read or is not RSA of 2,048 bits.
    """
    found: list[x509.Certificate] = []
    own = files(__package__).joinpath("certificates", f"{_plain(region)}.pem")
    if own.is_file():
        found += load_certificates(own.read_bytes(), own.name)
    for path in extra:
        try:
            found += load_certificates(read_regular(path), str(path))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
    return tuple(found)


def pinned_regions() -> list[str]:
    """Return the regions with AWS's own certificates."""
    names = (file.name for file in files(__package__).joinpath("certificates").iterdir())
    return sorted(name.removesuffix(".pem") for name in names if name.endswith(".pem"))


def load_certificates(pem: bytes, name: str) -> list[x509.Certificate]:
    """Return the certificates in a PEM text. Raises ValueError beginning with `name`."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ValueError(f"{name}: contains no readable PEM certificate ({error})") from None
    for one in found:
        key = one.public_key()
        if not isinstance(key, rsa.RSAPublicKey) or key.key_size < MIN_KEY_BITS:
            raise ValueError(f"{name}: a certificate's key is not RSA of {MIN_KEY_BITS} bits")
    return found


def _plain(region: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]{1,40}", region):
        raise ValueError(f"{region!r} is not the name of a region")
    return region


def _decoded(proof: bytes) -> bytes:
    if proof[:1] == bytes([_BER_SEQUENCE]):
        return proof
    try:
        return base64.b64decode(b"".join(proof.split()), validate=True)
    except binascii.Error:
        raise ProofRefusedError("malformed", "neither BER nor base64") from None


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ProofRefusedError("malformed", "the content is not JSON") from None
    if not isinstance(document, dict):
        raise ProofRefusedError("malformed", "the content is not a JSON object")
    shapes = {
        "accountId": _WORD,
        "region": _WORD,
        "imageId": _WORD,
        "instanceId": _INSTANCE_ID,
        "pendingTime": _MOMENT,
    }
    for key, shape in shapes.items():
        value = document.get(key)
        if not isinstance(value, str) or not shape.fullmatch(value):
            raise ProofRefusedError("malformed", f"{key} is missing or has another format")
    return document
